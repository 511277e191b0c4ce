"""Upkeep of an archive, by an operator or by a clock: looks into it, checks, exports, refills of memory, the end of
trees that are kept no longer; and a backup, which is an archive in one file, and the way back.

All of it goes over the archive by pages and by one tree at a time, in as much memory as one value takes. It may run
while the service does. store/backup/archiving/ knows how a tree is kept.
"""
