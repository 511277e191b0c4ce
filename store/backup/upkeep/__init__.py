"""Upkeep of an archive, which an operator asks for or a clock: what is in it, whether it is sound, out of it as lines
of text, back into memory, and the end of what is to be kept no longer.

All of it goes over the archive by pages and by one tree at a time, in as much memory as one value takes. It may run
while the service does. How a tree is kept, is known by store/backup/archiving/.
"""
