"""Open Responses, a dialect of the Responses API: its own items, its errors and its stream, below a prefix of its own.

Never a second way to make a response. docs/api.md is its page.
"""
