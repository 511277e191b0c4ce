"""Conversations in Redis: immutable turns, linked by parent, kept for as long as they are used.

A library on its own: it knows nothing of HTTP, of the Responses API or of any engine.
"""
