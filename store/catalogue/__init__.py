"""The catalogue of an archive: a row for each tree that is kept, to list and to find it without reading it (rows.py).

It is in SQLite or in Postgres, whatever the archive is in. Never write it but from what the archive has of a tree.
"""
