"""Servers over HTTP as one engine (`engine`): which one (`choosing`), who waits (`admission`), each of them (`server`).

`kind` is what differs between vLLM and the others: how one is asked, and what it answers. Whoever imports this room
needs an HTTP client. Never what only one kind of server knows.
"""
