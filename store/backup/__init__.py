"""Backups: the conversations of a store in one file, and back, while the store is in use; and single turns of them, out
and back (turns.py).

The file needs no server: it describes itself, and each byte of it is under a checksum. Never count a read as a use,
never evict for a restore, and never use a file that is not whole.
"""
