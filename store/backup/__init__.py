"""Turns in memory, as archives and backups have them: read while the store is in use, and brought back (turns.py); and
which archive a store has.

A turn here has its content as it was given, so it outlives the store's formats. Never count a read as a use, and never
evict for a restore.
"""
