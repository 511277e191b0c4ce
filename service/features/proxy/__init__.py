"""Requests that are passed on to an engine's server as they came: Chat Completions, embeddings and their like.

Never store what passes, and never send a server's key back. docs/engines.md is its page.
"""
