"""Redis: addresses, connections, channels and the Lua scripts as typed functions.

One way to one server, Sentinels and clusters, with deadlines on every operation.
Never the meaning of a key: the rooms above know it.
"""
