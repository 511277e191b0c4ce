"""The server that a process starts for itself where no Redis is set, with its data in the data folder.

The server is the store's (`store/embedded.py`). Never two of one folder. docs/operating.md is its page.
"""
