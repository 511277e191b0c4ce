"""Backups: the conversations of a store in one file, and back, while the store is in use; and single turns of them, out
and back (turns.py).

The file is for whoever can't ask the server: it describes itself, and each byte of it is under a checksum.
Never a use of what is only read, never an eviction for what is restored, and nothing of a file that is not whole.
"""
