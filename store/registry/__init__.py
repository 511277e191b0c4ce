"""The registry: projects, their service accounts and keys, the log of who changed what, and what was spent, for all who
share a store.

Whoever keeps a record says what is in it; here it is bytes under a name. Never a key's value, and nothing of users.
"""
