"""The check of a store: that every turn is stored whole, that counters agree with it, and how faults are repaired.

Reads a shard in bounded pieces beside live traffic.
Never a repair that was not asked for.
"""
