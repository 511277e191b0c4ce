"""An archive of the turns that leave memory: its chores, its check, and the commands for it and for backups.

The archive itself is the store's (`store/archive/`, `store/backup/`). Never forget a turn that the archive lacks.
docs/archive.md is its page.
"""
