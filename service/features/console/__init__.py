"""The console: its page, and the API behind it and the command line: a key's trees, and the turns of one.

Its paths are outside of the Responses API, under `/console/api`. To look here is no use of anything. Never show what
the same key couldn't retrieve. docs/console.md is its page.
"""
