"""Servers over HTTP as one engine: choosing among them (`engine`), how each is doing (`server`), streams (`answer`).

`kind` is what differs between vLLM and the others: how one is asked, and what it answers. Whoever imports this room
needs an HTTP client. Never what only one kind of server knows.
"""
