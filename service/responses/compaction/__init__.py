"""Compaction: when a conversation is replaced by a summary, what the model is asked for, and how it is kept.

Pure. The summary itself is a response like any other.
Never a decision of the store: the turns before a compaction stay as they are.
"""
