"""catalogue: all that is kept, listed and found by its words, wherever it is.

Why: lists of memory alone are empty after a restore, and a search that reads every conversation doesn't end.
Never: a row of anything but what the archive has of a tree; another tenant's rows, or time that these take.
Page: docs/archive.md
"""
