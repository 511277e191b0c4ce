"""Connections to servers of engines (`connection`), kept ones, and small requests over them (`pool`).

What is read here is bytes: what they mean is for `servers` and the kinds. Never what an engine is, or which server is
to be asked.
"""
