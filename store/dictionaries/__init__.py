"""Dictionaries of zstd that were ever shipped, each a file named by its number, and what loads them.

They say what responses have in common, so that a compressed one need not. Never change or delete one of these files:
what was written with it can't be read without it.
"""
