"""A catalogue: the rows of trees in a table, in the SQL that SQLite and Postgres have in common.

A row has the version of the tree that it was made of, and is put only in the place of the version that its maker found
before the tree was read; else the maker begins again. So a late writer never undoes what came after it. Of a deleted
tree a bare row stays, which nobody is told of, for as long as the archive keeps the tree's tombstones.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from store.catalogue.rows import CatalogueRow, entries_of, entries_wanted, text_around
from store.errors import ArchiveUnavailable
from store.history.elsewhere import KeptQuery, KeptTree
from store.keys import SHARD_DIGITS

TABLE, NOTES = "harmonium_catalogue", "harmonium_catalogue_notes"

CALL_SECONDS = 5.0
"""How long a catalogue may take for an answer, with all who wait before."""

REMOVED = 50
"""How many rows of many are removed at once, as others wait meanwhile: 20 ms for one with all that was said."""

MOST_SORTED = 3_000
"""From how many rows that match on it is quicker to look at all rows in their order until enough of them match."""

_NOTE = f"SELECT value FROM {NOTES} WHERE name = $1"
_PUT_NOTE = f"INSERT INTO {NOTES} VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_VERSIONS = f"SELECT place, version FROM {TABLE} WHERE place > $1 AND place < $2 ORDER BY place LIMIT $3"
_ROW = f"SELECT version, used, root, newest, shown FROM {TABLE} WHERE place = $1"
_COLUMNS = "place, tenant, tree, version, used, root, newest, shown, words, found"
_VALUES = "$1, $2, $3, $4, $5, $6, $7, $8, $9"
_REMOVE = f"DELETE FROM {TABLE} WHERE place = $1 AND version = $2 RETURNING true"
_ERASE_SOME = f"""DELETE FROM {TABLE} WHERE place IN (
    SELECT place FROM {TABLE} WHERE tenant = $1 AND shown IS NOT NULL AND used <= $2 LIMIT $3
) RETURNING true"""
_WANTED = """WHERE tenant = $1 AND shown IS NOT NULL AND (used, tree) < ($2, $3) AND used >= $4"""
_SELECT = "SELECT tree, used, root, newest, shown,"
_IN_ORDER = "ORDER BY used DESC, tree DESC LIMIT $5"

T = TypeVar("T")


class CatalogueDatabase(Protocol):
    """The database of a catalogue. All raise ArchiveUnavailable."""

    found: str
    """The value of $10, the entries of a row with spaces between them, for the column `found`."""
    counted: str
    """A source of the rows that match the question $1."""
    few: str
    many: str
    """The conditions that a row matches the question $6: for a look at those that do, and at all in an order."""

    def question(self, wanted: Mapping[str, bool]) -> str:
        """The question for rows with all of these entries, or with some that begin so."""
        ...

    async def read(self, statement: str, *values: object) -> Sequence[Any]:
        """The rows that a statement tells."""
        ...

    async def search(self, statement: str, *values: object) -> Sequence[Any]:
        """The same, where that may take long."""
        ...

    async def write(self, statement: str, *values: object) -> Sequence[Any]:
        """The rows that a statement tells that changes some; it is on the disk then."""
        ...

    async def tidy(self) -> bool:
        """Take some of what was removed out of the index of words; False once there is nothing left of it."""
        ...

    async def close(self) -> None:
        """Give back what it holds."""
        ...


class StoredRow(NamedTuple):
    """A row without its facts and its words, None for a bare one, and its version, empty where there is no row."""

    version: str = ""
    row: CatalogueRow | None = None


class Catalogue:
    """A catalogue in a database. All raise ArchiveUnavailable."""

    def __init__(self, database: CatalogueDatabase) -> None:
        self._database = database
        self._insert = f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES ({_VALUES}, {database.found})"
        self._update = f"UPDATE {TABLE} SET ({_COLUMNS}) = ({_VALUES}, {database.found})"
        self.tidy, self.close = database.tidy, database.close
        self._searching = WeakValueDictionary[str, asyncio.Lock]()
        """One search of each tenant at a time, as others have to wait for it."""

    async def note(self, name: str) -> str:
        """A note; empty where there is none."""
        found = await _in_time(self._database.read(_NOTE, name))
        return found[0][0] if found else ""

    async def put_note(self, name: str, value: str) -> None:
        await _in_time(self._database.write(_PUT_NOTE, name, value))

    async def versions(self, after: str, until: str, limit: int) -> Sequence[tuple[str, str]]:
        """The places of the next rows between two, bare ones too, and their versions."""
        return [
            (place, version) for place, version in await _in_time(self._database.read(_VERSIONS, after, until, limit))
        ]

    async def row(self, tenant: str, tree: str) -> StoredRow:
        found = await _in_time(self._database.read(_ROW, place_of(tenant, tree)))
        if not found:
            return StoredRow()
        version, *told = found[0]
        return StoredRow(version, None if told[-1] is None else CatalogueRow(*told))

    async def put(self, tenant: str, tree: str, row: CatalogueRow | None, version: str, only_if: str) -> bool:
        """Put a row with a version, a bare one for None, in the place of that with the version `only_if`, or where none
        is if that is empty; False where there is another one. An empty `version` removes it.
        """
        place = place_of(tenant, tree)
        if not version:
            return bool(await _in_time(self._database.write(_REMOVE, place, only_if)))
        used, root, newest, shown, _, words = row or (0, "", "", None, (), "")
        found = row and await asyncio.to_thread(entries_of, tenant, row)
        values = place, tenant, tree, version, used, root, newest, shown, words.replace("\0", " "), found or ""
        if only_if:
            changed = self._database.write(
                f"{self._update} WHERE place = $1 AND version = $11 RETURNING true", *values, only_if
            )
        else:
            changed = self._database.write(f"{self._insert} ON CONFLICT DO NOTHING RETURNING true", *values)
        return bool(await _in_time(changed))

    async def erase(self, tenant: str, until: int) -> None:
        """Remove the rows of a tenant that were used last until then, in µs since 1970; bare ones stay."""
        while await _in_time(self._database.write(_ERASE_SOME, tenant, until, REMOVED)):
            pass

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        """The rows of a tenant that are wanted, the one used last first."""
        wanted = entries_wanted(tenant, query.words, query.facts)
        if query.words and not wanted:
            return ()
        rows = await _in_time(self._search(tenant, query, wanted) if wanted else self._list(tenant, query))
        if not query.words:
            return [KeptTree(*row) for row in rows]
        return await asyncio.to_thread(
            lambda: [KeptTree(*row[:5], text=text_around(row[5], query.words)) for row in rows]
        )

    async def _list(self, tenant: str, query: KeptQuery) -> Sequence[Any]:
        return await self._database.read(
            f"{_SELECT} '' FROM {TABLE} {_WANTED} {_IN_ORDER}", *_parameters_of(tenant, query)
        )

    async def _search(self, tenant: str, query: KeptQuery, wanted: Mapping[str, bool]) -> Sequence[Any]:
        database, words, question = self._database, "words" if query.words else "''", self._database.question(wanted)
        count = f"SELECT count(*) FROM (SELECT 1 FROM {database.counted} LIMIT {MOST_SORTED}) few"
        async with self._searching.setdefault(tenant, asyncio.Lock()):
            if (await database.search(count, question) or [(0,)])[0][0] < MOST_SORTED:
                # twice as many, as there may be more by now; a limit has this looked for by itself
                source, match = f"(SELECT * FROM {TABLE} WHERE {database.few} LIMIT {2 * MOST_SORTED}) few", ""
            else:
                source, match = TABLE, f"AND {database.many}"
            statement = f"{_SELECT} {words} FROM {source} {_WANTED} {match} {_IN_ORDER}"
            return await database.search(statement, *_parameters_of(tenant, query), question)


def _parameters_of(tenant: str, query: KeptQuery) -> tuple[object, ...]:
    return tenant, *query.before, query.since, query.limit


def place_of(tenant: str, tree: str) -> str:
    """The place of the row of a tree, by its shard and its digits: rows are in the order of the archive's keys."""
    return f"{tree[:SHARD_DIGITS]}/t.{tenant}/{tree[SHARD_DIGITS:]}"


async def _in_time(asked: Awaitable[T]) -> T:
    """The answer of a catalogue. Raises ArchiveUnavailable where that takes too long."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await asked
    except TimeoutError:
        raise ArchiveUnavailable(f"its catalogue did not answer within {CALL_SECONDS:g} s") from None
