"""Servers over HTTP as one engine (`engine`): which one (`choosing`), who waits (`admission`), each of them (`server`).

`connection` and `pool` are the way there: bytes, whose meaning is for the kinds. `kind` is what differs between vLLM
and the others: how one is asked, and what it answers. Never what only one kind of server knows, but in `sglang` and
`tensorrt`, which are kinds of a file each.
"""
