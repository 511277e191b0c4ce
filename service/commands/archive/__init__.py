"""`harmonium archive`: what an operator does with the archive of the settings. Looks at it, checks it, exports from it,
fills memory from it, erases, holds.

store/backup/upkeep/ does it; this asks for it and prints what came of it. Never show what anybody said, but in an
export.
"""
