"""Servers that are asked by Chat Completions: they make the prompts, and read what their model writes.

For models whose markup we can't read, and servers that take no token ids. Some features are lost by that; this room
says so (docs/models.md), but never decides on them.
"""
