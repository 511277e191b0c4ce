"""Servers over HTTP as one engine (`engine`): which one (`choosing`), who waits (`admission`), each of them (`server`).

`connection` and `pool` carry bytes, whose meaning is for the kinds. `kind` holds the differences between vLLM and the
others: how one is asked, and how it answers. Facts of one kind alone belong in its own file.
"""
