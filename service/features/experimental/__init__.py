"""Servers of SGLang and TensorRT-LLM, which were read and never met: experimental until somebody tries them.

Never a promise about them. docs/engines.md is their page.
"""
