"""The registry: projects, their service accounts and keys, the log of who changed what, and the tokens spent, for all
who share a store.

A record is bytes under a name here; its caller gives it a meaning. Never a key's value, and nothing of users.
"""
