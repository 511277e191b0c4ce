"""Output items: an emitter for each kind, which knows its events and their order.

The grammar of each kind is the table in docs/events.md.
Never a sequence number: the machine stamps them.
"""
