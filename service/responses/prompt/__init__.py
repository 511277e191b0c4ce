"""Prompts: input items and a chain become Harmony messages, and these the tokens that the engine gets.

Pure, so that every byte of a prompt can be tested.
Never I/O, a clock or chance: their values are passed in.
"""
