"""Trees in an archive: what the value of a key says, how news of a tree come into it, and how turns come back.

An archive holds a tree as a backup does, turn by turn and with what was given, not as the store packs it: so what is
archived outlives the store's formats. What an archive is, is known by store/archive/; what changes in Redis together
with a turn, by store/redis/lua/unarchived.lua.
"""
