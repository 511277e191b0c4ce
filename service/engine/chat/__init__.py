"""Servers that are asked by Chat Completions: they make the prompts, and read what their model writes.

For models whose markup nobody here reads, and servers that take no token ids. Never decides what is lost by that, but
says it (docs/models.md).
"""
