"""Harmony: the vocabulary, messages to tokens, and sampled tokens to headers and text.

Pure. The format that gpt-oss was trained on, and nothing of the Responses API.
Never an item, an event or a request.
"""
