"""Conversations: turns are appended, read, deleted and evicted.

Immutable turns in trees, each with its parent, bounded by caps.
Never a job: a turn that has not ended belongs to `jobs` until it has.
"""
