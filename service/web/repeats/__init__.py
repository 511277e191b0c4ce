"""Requests that come again: with the same Idempotency-Key, the same thing is made once, and told again.

Who makes it is known by store/history/notes/idempotency.py; here a request is taken, waited for, or found to be made
already. Never take a key from another header: clients send those with every turn of a conversation.
"""
