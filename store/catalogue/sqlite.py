"""A catalogue in SQLite: one file of a machine, which any number of its processes use, with an index of words (FTS5).

The rows of a tenant have numbers that follow each other, so a search for words reads those of its own tenant alone.
"""

import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from store.archive.sqlite import ShardFile, open_file
from store.catalogue.rows import (
    AROUND_WORDS,
    MAKING,
    MOST_SORTED,
    CatalogueRow,
    is_beginning,
    is_by,
    making_of,
    new_version,
)
from store.history.elsewhere import KeptQuery, KeptTree

FORMAT = 1
TENANT_BITS = 32
"""How many bits of a row's number are its own; those above are its tenant's."""

REMOVED = 50
"""How many rows of many are removed at once, as others wait meanwhile: 20 ms for one with all that was said."""

TIDIED_PAGES = 200
"""How many pages of the index one step writes: some milliseconds."""

_TABLES = f"""
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS tenant (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS tree (
        id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, tree TEXT NOT NULL, version TEXT NOT NULL,
        used INTEGER NOT NULL, root TEXT NOT NULL, newest TEXT NOT NULL, shown BLOB, facts TEXT NOT NULL,
        words TEXT NOT NULL, UNIQUE (tenant, tree)
    );
    CREATE INDEX IF NOT EXISTS tree_used ON tree (tenant, used DESC, tree DESC) WHERE shown IS NOT NULL;
    CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5 (
        words, facts, content = 'tree', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
        prefix = '2 3'
    );
    CREATE TRIGGER IF NOT EXISTS tree_added AFTER INSERT ON tree BEGIN
        INSERT INTO found (rowid, words, facts) VALUES (new.id, new.words, new.facts);
    END;
    CREATE TRIGGER IF NOT EXISTS tree_removed AFTER DELETE ON tree BEGIN
        INSERT INTO found (found, rowid, words, facts) VALUES ('delete', old.id, old.words, old.facts);
    END;
    CREATE TRIGGER IF NOT EXISTS tree_changed AFTER UPDATE ON tree BEGIN
        INSERT INTO found (found, rowid, words, facts) VALUES ('delete', old.id, old.words, old.facts);
        INSERT INTO found (rowid, words, facts) VALUES (new.id, new.words, new.facts);
    END;
    PRAGMA user_version = {FORMAT};
"""

_ABOUT = "SELECT value FROM about WHERE name = ?"
_NOTE = "INSERT INTO about (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_NUMBER = "SELECT number FROM tenant WHERE name = ?"
_TREES = """SELECT name, tree FROM tree JOIN tenant ON number = tenant
    WHERE (tenant, tree) > (coalesce((SELECT number FROM tenant WHERE name = ?), 0), ?) ORDER BY tenant, tree LIMIT ?"""
_VERSION = "SELECT version FROM tree JOIN tenant ON number = tenant WHERE name = ? AND tree = ?"
_ROW = """SELECT used, root, newest, shown FROM tree JOIN tenant ON number = tenant
    WHERE name = ? AND tree = ? AND shown IS NOT NULL"""
_INSERT = """INSERT INTO tree (id, tenant, tree, version, used, root, newest, shown, facts, words)
    VALUES (
        (SELECT coalesce(max(id), ?1 << ?10) + 1 FROM tree WHERE id >= ?1 << ?10 AND id < (?1 + 1) << ?10),
        ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
    )
    ON CONFLICT (tenant, tree) DO NOTHING"""
_UPDATE = """UPDATE tree SET version = ?3, used = ?4, root = ?5, newest = ?6, shown = ?7, facts = ?8, words = ?9
    WHERE tenant = ?1 AND tree = ?2 AND version = ?10"""
_REMOVE = """DELETE FROM tree
    WHERE tenant = (SELECT number FROM tenant WHERE name = ?1) AND tree = ?2 AND version = ?3"""
_ERASE_SOME = """DELETE FROM tree
    WHERE id IN (
        SELECT id FROM tree
        WHERE tenant = (SELECT number FROM tenant WHERE name = ?) AND shown IS NOT NULL AND used <= ? LIMIT ?
    )"""
_REMOVE_SOME = "DELETE FROM tree WHERE id IN (SELECT id FROM tree LIMIT ?)"
_LISTED = """SELECT tree, used, root, newest, shown, id FROM tree
    WHERE tenant = ? AND shown IS NOT NULL AND (used, tree) < (?, ?) AND used >= ?"""
_IN_ORDER = " ORDER BY used DESC, tree DESC LIMIT ?"
_MATCHING = " AND id IN (SELECT rowid FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ?)"
_COUNTED = "SELECT count(*) FROM (SELECT 1 FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?)"
_BY_TENANT, _BY_NUMBER = "WHERE tenant = ?", "WHERE +tenant = ?"
"""By the order of use, looking at each row whether it is among those that match; or by the numbers of these, to be put
into that order then.
"""

_AROUND = f"""SELECT rowid, snippet(found, 0, '', '', '…', {AROUND_WORDS}) FROM found
    WHERE found MATCH ? AND rowid BETWEEN ? AND ? AND +rowid IN (SELECT value FROM json_each(?))"""
"""`+`, as else what matches is looked up again for each of the rows."""

_UNTIDY = "untidy"
"""The note that something was removed which the index of words may still have."""


class SqliteCatalogue:
    """A catalogue in a file. `busy_seconds` is how long it waits for other processes. A thread of its own searches, so
    that no archiver waits for that.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        connect = partial(open_file, tables=_TABLES)
        self._file, self._searched = (ShardFile(path, busy_seconds, connect, replaceable=True) for _ in range(2))
        self._tidying = ""

    async def note(self, name: str) -> str:
        return await self._file.read(lambda file: _about(file, name), "")

    async def begin(self, about: str, besides: str = "") -> str:
        def work(file: sqlite3.Connection) -> str:
            """Empty some of it, and note by what it is made once it is empty; that note then."""
            if is_by(making := _about(file, MAKING), about) and making != besides:
                return making
            file.execute("DELETE FROM about")
            if file.execute(_REMOVE_SOME, (REMOVED,)).rowcount:
                return ""
            making = making_of(about)
            for note in ((MAKING, making), (_UNTIDY, new_version())):
                file.execute(_NOTE, note)
            return making

        while not (making := await self._file.write(work)):
            pass
        return making

    async def put_note(self, name: str, value: str, making: str, only_if: str | None = None) -> bool:
        def work(file: sqlite3.Connection) -> bool:
            is_so = _about(file, MAKING) == making and only_if in (None, _about(file, name))
            if is_so:
                file.execute(_NOTE, (name, value))
            return is_so

        return await self._file.write(work)

    async def trees(self, after: tuple[str, str], limit: int) -> Sequence[tuple[str, str]]:
        return await self._file.read(lambda file: file.execute(_TREES, (*after, limit)).fetchall(), ())

    async def version(self, tenant: str, tree: str) -> str:
        def work(file: sqlite3.Connection) -> str:
            row = file.execute(_VERSION, (tenant, tree)).fetchone()
            return row[0] if row else ""

        return await self._file.read(work, "")

    async def row(self, tenant: str, tree: str) -> CatalogueRow | None:
        def work(file: sqlite3.Connection) -> CatalogueRow | None:
            row = file.execute(_ROW, (tenant, tree)).fetchone()
            return CatalogueRow(*row) if row else None

        return await self._file.read(work, None)

    async def put(self, tenant: str, tree: str, row: CatalogueRow | None, only_if: str) -> bool:
        told: tuple[object, ...] = (0, "", "", None, "", "")
        if row is not None:
            told = row.used, row.root, row.newest, row.shown, " ".join(row.facts), row.words
        values = (tree, new_version(), *told)

        def work(file: sqlite3.Connection) -> bool:
            number = _number(file, tenant)
            # the words of a tree that went on are no deleted ones; those that were deleted besides go within a day
            goes_on = row is not None and row.used > _last_use(file, number, tree)
            if only_if:
                done = file.execute(_UPDATE, (number, *values, only_if))
            else:
                done = file.execute(_INSERT, (number, *values, TENANT_BITS))
            if only_if and done.rowcount and not goes_on:
                file.execute(_NOTE, (_UNTIDY, new_version()))
            return bool(done.rowcount)

        return await self._file.write(work)

    async def remove(self, tenant: str, tree: str, only_if: str) -> bool:
        def work(file: sqlite3.Connection) -> bool:
            if file.execute(_REMOVE, (tenant, tree, only_if)).rowcount:
                file.execute(_NOTE, (_UNTIDY, new_version()))
                return True
            return file.execute(_VERSION, (tenant, tree)).fetchone() is None

        return await self._file.write(work)

    async def erase(self, tenant: str, until: int) -> None:
        def work(file: sqlite3.Connection) -> int:
            file.execute(_NOTE, (_UNTIDY, new_version()))
            return file.execute(_ERASE_SOME, (tenant, until, REMOVED)).rowcount

        while await self._file.write(work):
            pass

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        return await self._searched.read(lambda file: _find(file, tenant, query), ())

    async def note_untidy(self) -> None:
        await self._file.write(lambda file: file.execute(_NOTE, (_UNTIDY, new_version())))

    async def tidy(self) -> bool:
        begun = self._tidying
        if not begun and not await self._file.read(lambda file: _about(file, _UNTIDY), ""):
            return False

        def work(file: sqlite3.Connection) -> str:
            """A step of a merge of all of the index, as FTS5's documents have it; the note that it began by, empty once
            it is over. What was removed since has left another one.
            """
            note, before = begun or _about(file, _UNTIDY), file.total_changes
            file.execute(
                "INSERT INTO found (found, rank) VALUES ('merge', ?)", (TIDIED_PAGES if begun else -TIDIED_PAGES,)
            )
            if file.total_changes - before >= 2:
                return note
            file.execute("DELETE FROM about WHERE name = ? AND value = ?", (_UNTIDY, note))
            return ""

        self._tidying = await self._file.write(work)
        return True

    async def close(self) -> None:
        await self._searched.close()
        await self._file.close()


def _about(file: sqlite3.Connection, name: str) -> str:
    row = file.execute(_ABOUT, (name,)).fetchone()
    return row[0] if row else ""


def _last_use(file: sqlite3.Connection, number: int, tree: str) -> int:
    """The last use of a tree of the tenant with a number; a later one than any where there is no row."""
    row = file.execute("SELECT used FROM tree WHERE tenant = ? AND tree = ?", (number, tree)).fetchone()
    return row[0] if row else 1 << 62


def _number(file: sqlite3.Connection, tenant: str) -> int:
    """The number of a tenant, which gets one."""
    file.execute("INSERT INTO tenant (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (tenant,))
    return file.execute(_NUMBER, (tenant,)).fetchone()[0]


def _find(file: sqlite3.Connection, tenant: str, query: KeptQuery) -> list[KeptTree]:
    number = file.execute(_NUMBER, (tenant,)).fetchone()
    if number is None:
        return []
    asked, statement, match = [number[0], *query.before, query.since], _LISTED, _match(query)
    if match:
        matching = (match, number[0] << TENANT_BITS, ((number[0] + 1) << TENANT_BITS) - 1)
        if file.execute(_COUNTED, (*matching, MOST_SORTED)).fetchone()[0] < MOST_SORTED:
            statement = statement.replace(_BY_TENANT, _BY_NUMBER)
        asked, statement = [*asked, *matching], statement + _MATCHING
    rows = file.execute(statement + _IN_ORDER, (*asked, query.limit)).fetchall()
    ids = [row[-1] for row in rows]
    texts = dict(file.execute(_AROUND, (match, min(ids), max(ids), str(ids)))) if query.words and ids else {}
    return [KeptTree(*row[:5], text=texts.get(row[5], "")) for row in rows]


def _match(query: KeptQuery) -> str:
    """The question to the index: words are strings in quotes there. Those with neither letters nor digits count for
    nothing beside others, as they stand one behind the other.
    """
    words = (word.translate({ord('"'): " ", 0: " "}) + '"' + " *" * is_beginning(word) for word in query.words)
    return " ".join([*(f'words : "{word}' for word in words), *(f'facts : "{fact}"' for fact in query.facts)])
