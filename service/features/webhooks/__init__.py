"""Webhooks: the signed HTTP request that tells a receiver how a background response ended.

Each is sent until its receiver takes it or a day is over. Never a word of a conversation. docs/events.md is its page.
"""
