"""Kinds of servers that no real one has met: `sglang` and `tensorrt`, as read in the sources of 2026.

Tests hold them against stand-ins alone. They leave this room once a real server has run their tests.
"""
