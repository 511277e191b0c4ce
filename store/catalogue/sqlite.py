"""A catalogue in SQLite: one file of a machine, used by any number of its processes, with an index of words (FTS5)."""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from store.archive.sqlite import ShardFile, open_file
from store.catalogue.catalogue import NOTES, TABLE
from store.catalogue.rows import TENANT_BYTES

FORMAT = 1
MARK_CHARS = 2 * TENANT_BYTES + 1

TIDIED_PAGES = 200
"""How many pages of the index one step writes: some milliseconds."""

UNTIDY = "untidy"
"""The note that something was removed which the index of words may still have, another one each time."""

_NOTE_UNTIDY = f"INSERT OR REPLACE INTO {NOTES} VALUES ('{UNTIDY}', hex(randomblob(8)))"
_TAKE_OUT = "INSERT INTO entries (entries, rowid, found) VALUES ('delete', old.id, old.found)"
_PUT_IN = "INSERT INTO entries (rowid, found) VALUES (new.id, new.found)"

# the words of a tree that went on are no deleted ones; those that were deleted besides go within a day
_TABLES = f"""
    CREATE TABLE IF NOT EXISTS {NOTES} (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS {TABLE} (
        id INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, tree TEXT NOT NULL,
        version TEXT NOT NULL, used INTEGER NOT NULL, root TEXT NOT NULL, newest TEXT NOT NULL, shown BLOB,
        words TEXT NOT NULL, found TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS row_used ON {TABLE} (tenant, used DESC, tree DESC) WHERE shown IS NOT NULL;
    CREATE VIRTUAL TABLE IF NOT EXISTS entries USING fts5 (
        found, content = '', detail = none, columnsize = 0, tokenize = "ascii tokenchars '.,'",
        prefix = '{MARK_CHARS + 2} {MARK_CHARS + 3}'
    );
    CREATE TRIGGER IF NOT EXISTS row_added AFTER INSERT ON {TABLE} BEGIN {_PUT_IN}; END;
    CREATE TRIGGER IF NOT EXISTS row_removed AFTER DELETE ON {TABLE} BEGIN {_TAKE_OUT}; {_NOTE_UNTIDY}; END;
    CREATE TRIGGER IF NOT EXISTS row_changed AFTER UPDATE ON {TABLE} BEGIN {_TAKE_OUT}; {_PUT_IN}; END;
    CREATE TRIGGER IF NOT EXISTS row_untidy AFTER UPDATE ON {TABLE} WHEN new.used <= old.used BEGIN {_NOTE_UNTIDY}; END;
    PRAGMA user_version = {FORMAT};
"""


class SqliteCatalogue:
    """The file of a catalogue. `busy_seconds` is how long it waits for other processes. A thread of its own searches,
    so that no archiver waits for that.
    """

    found, counted = "$10", "entries WHERE entries MATCH $1"
    few, many = (f"{id} IN (SELECT rowid FROM entries WHERE entries MATCH $6)" for id in ("id", "+id"))

    def __init__(self, path: Path, busy_seconds: float) -> None:
        connect = partial(open_file, tables=_TABLES)
        self._file, self._searched = (ShardFile(path, busy_seconds, connect, replaceable=True) for _ in range(2))
        self._tidying = ""

    def question(self, wanted: Mapping[str, bool]) -> str:
        return " ".join(f'"{entry}"{" *" * is_beginning}' for entry, is_beginning in wanted.items())

    async def read(self, statement: str, *values: object) -> Sequence[Any]:
        return await self._file.read(partial(_rows, statement, values), ())

    async def search(self, statement: str, *values: object) -> Sequence[Any]:
        return await self._searched.read(partial(_rows, statement, values), ())

    async def write(self, statement: str, *values: object) -> Sequence[Any]:
        return await self._file.write(partial(_rows, statement, values))

    async def tidy(self) -> bool:
        begun, note = self._tidying, f"SELECT value FROM {NOTES} WHERE name = '{UNTIDY}'"
        if not begun and not await self.read(note):
            return False

        def work(file: sqlite3.Connection) -> str:
            """A step of a merge of all of the index, as FTS5's documents have it; the note that it began by, empty once
            it is over, here or by another process. What was removed since has left another one.
            """
            if not (noted := file.execute(note).fetchone()):
                return ""
            by, before = begun or noted[0], file.total_changes
            pages = TIDIED_PAGES if begun else -TIDIED_PAGES
            file.execute("INSERT INTO entries (entries, rank) VALUES ('merge', ?)", (pages,))
            if file.total_changes - before >= 2:
                return by
            file.execute(f"DELETE FROM {NOTES} WHERE name = ? AND value = ?", (UNTIDY, by))
            return ""

        self._tidying = await self._file.write(work)
        return True

    async def close(self) -> None:
        await self._searched.close()
        await self._file.close()


def _rows(statement: str, values: Sequence[object], file: sqlite3.Connection) -> Sequence[Any]:
    return file.execute(statement, {str(at): value for at, value in enumerate(values, 1)}).fetchall()
