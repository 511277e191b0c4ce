"""Trees in an archive: the value of a key, how news of a tree come into it, and how turns come back.

An archive holds a tree as a backup does, turn by turn and as it was given, not as the store packs it. So the archive
outlives the store's formats. store/archive/ defines an archive; store/redis/lua/unarchived.lua notes in Redis which
turns have changed.
"""
