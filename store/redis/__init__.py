"""Redis: addresses, connections, channels and the Lua scripts as typed functions.

One way to one server, Sentinels and clusters, with deadlines on every operation.
Never what a key means: that is for the rooms above.
"""
