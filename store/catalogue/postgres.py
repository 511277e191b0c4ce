"""A catalogue in Postgres: one table, made on first use where it is missing, with an index of facts and words (GIN).

Every entry of the index begins with its tenant, so a search reads those of its own tenant alone. Words are split here,
without case and diacritics, so that a database's locale doesn't matter, nor what a word would mean to its parser.
Deleted rows leave the table and its index with the server's own vacuum.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from store.archive.port import Bounds
from store.archive.postgres import PostgresTable
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

TABLE, NOTES = "harmonium_catalogue", "harmonium_catalogue_notes"

TENANT_BYTES = 4
"""The bytes of a digest of the tenant at the beginning of each entry; rows of two that share it are told apart."""

WORD_CHARS = 64
"""How much of a word is looked for."""

REMOVED = 1_000
"""How many rows of many are removed at once: each time those removed before are passed over."""

PENDING_KIB = 256
"""How much waits to be put into the index, which each search reads: a millisecond or two."""

LOCK = 0x6861726E
"""The advisory lock of whoever begins to make it whole."""

_MADE = (
    f"""CREATE TABLE {TABLE} (
        tenant text COLLATE "C", tree text COLLATE "C", version text NOT NULL, used bigint NOT NULL,
        root text NOT NULL, newest text NOT NULL, shown bytea, words text NOT NULL, found tsvector NOT NULL,
        PRIMARY KEY (tenant, tree)
    )""",
    f"CREATE INDEX {TABLE}_used ON {TABLE} (tenant, used, tree) WHERE shown IS NOT NULL",
    f"CREATE INDEX {TABLE}_found ON {TABLE} USING gin (found) WITH (gin_pending_list_limit = {PENDING_KIB})",
    f"CREATE TABLE {NOTES} (name text PRIMARY KEY, value text NOT NULL)",
)
_ABOUT = f"SELECT value FROM {NOTES} WHERE name = $1"
_NOTE = f"INSERT INTO {NOTES} VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_NOTE_IF = f"""INSERT INTO {NOTES} SELECT $1, $2 FROM {NOTES} WHERE name = '{MAKING}' AND value = $3
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
        WHERE $4::text IS NULL OR {NOTES}.value = $4 RETURNING true"""
_TREES = f"SELECT tenant, tree FROM {TABLE} WHERE (tenant, tree) > ($1, $2) ORDER BY tenant, tree LIMIT $3"
_VERSION = f"SELECT version FROM {TABLE} WHERE tenant = $1 AND tree = $2"
_ROW = f"SELECT used, root, newest, shown FROM {TABLE} WHERE tenant = $1 AND tree = $2 AND shown IS NOT NULL"
_COLUMNS = "tenant, tree, version, used, root, newest, shown, words, found"
_VALUES = "$1, $2, $3, $4, $5, $6, $7, $8, array_to_tsvector($9::text[])"
_INSERT = f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES ({_VALUES}) ON CONFLICT DO NOTHING RETURNING true"
_UPDATE = f"""UPDATE {TABLE} SET ({_COLUMNS}) = ({_VALUES})
    WHERE tenant = $1 AND tree = $2 AND version = $10 RETURNING true"""
_REMOVE = f"DELETE FROM {TABLE} WHERE tenant = $1 AND tree = $2 AND version = $3"
_REMOVE_SOME = f"""WITH removed AS (
        DELETE FROM {TABLE} WHERE ctid = ANY(
            ARRAY(
                SELECT ctid FROM {TABLE} WHERE $1 = '' OR (tenant = $1 AND shown IS NOT NULL AND used <= $3) LIMIT $2
            )
        )
        RETURNING 1
    ) SELECT count(*) FROM removed"""
_WANTED = "shown IS NOT NULL AND (used, tree) < ($2, $3) AND used >= $4"
_IN_ORDER = "ORDER BY used DESC, tree DESC LIMIT $5"
_SHOWN = f"SELECT tree, used, root, newest, shown, '' FROM {TABLE} WHERE tenant = $1 AND {_WANTED} {_IN_ORDER}"
_COUNTED = f"SELECT count(*) FROM (SELECT 1 FROM {TABLE} WHERE found @@ $1::text::tsquery LIMIT {MOST_SORTED}) few"
_BY_MATCH = f"""WITH matching AS MATERIALIZED (SELECT * FROM {TABLE} WHERE found @@ $6::text::tsquery)
    SELECT tree, used, root, newest, shown, words FROM matching WHERE tenant = $1 AND {_WANTED} {_IN_ORDER}"""
_BY_USE = f"""SELECT tree, used, root, newest, shown, words FROM {TABLE}
    WHERE tenant = $1 AND {_WANTED} AND ts_match_vq(found, $6::text::tsquery) {_IN_ORDER}"""
"""`ts_match_vq` is `@@` without its index."""

_MARKS, _WORD = re.compile("[\u0300-\u036f]+"), re.compile(r"[^\W_]+")


class PostgresCatalogue(PostgresTable):
    """A catalogue in a database; `url` as libpq has it."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        super().__init__(url, bounds, TABLE, _MADE)

    async def note(self, name: str) -> str:
        async with self.connection() as connection:
            return await connection.fetchval(_ABOUT, name) or ""

    async def begin(self, about: str, besides: str = "") -> str:
        while not (making := await self._begin(about, besides)):
            pass
        return making

    async def put_note(self, name: str, value: str, making: str, only_if: str | None = None) -> bool:
        async with self.connection() as connection:
            return bool(await connection.fetchval(_NOTE_IF, name, value, making, only_if))

    async def trees(self, after: tuple[str, str], limit: int) -> Sequence[tuple[str, str]]:
        async with self.connection() as connection:
            return [tuple(row) for row in await connection.fetch(_TREES, *after, limit)]

    async def version(self, tenant: str, tree: str) -> str:
        async with self.connection() as connection:
            return await connection.fetchval(_VERSION, tenant, tree) or ""

    async def row(self, tenant: str, tree: str) -> CatalogueRow | None:
        async with self.connection() as connection:
            row = await connection.fetchrow(_ROW, tenant, tree)
        return CatalogueRow(*row) if row else None

    async def put(self, tenant: str, tree: str, row: CatalogueRow | None, only_if: str) -> bool:
        shown, told = (None, CatalogueRow(0, "", "", b"")) if row is None else (row.shown, row)
        found = {*(_fact(tenant, fact) for fact in told.facts), *_words(tenant, told.words)}
        text = told.words.replace("\0", " ")  # which Postgres takes in no text
        values = tenant, tree, new_version(), told.used, told.root, told.newest, shown, text, list(found)
        async with self.connection() as connection:
            done = connection.fetchval(_UPDATE, *values, only_if) if only_if else connection.fetchval(_INSERT, *values)
            return bool(await done)

    async def remove(self, tenant: str, tree: str, only_if: str) -> bool:
        async with self.connection() as connection:
            await connection.execute(_REMOVE, tenant, tree, only_if)
            return await connection.fetchval(_VERSION, tenant, tree) is None

    async def erase(self, tenant: str, until: int) -> None:
        async with self.connection() as connection:
            while await connection.fetchval(_REMOVE_SOME, tenant, REMOVED, until):
                pass

    async def find(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        asked = [tenant, *query.before, query.since, query.limit]
        words = list(_words(tenant, " ".join(query.words)))
        async with self.connection() as connection:
            statement = _SHOWN
            if match := " & ".join(
                [
                    *(f"'{word}'{':*' * is_beginning(word[2 * TENANT_BYTES + 1 :])}" for word in words),
                    *(_fact(tenant, each) for each in query.facts),
                ]
            ):
                statement = _BY_MATCH if await connection.fetchval(_COUNTED, match) < MOST_SORTED else _BY_USE
                asked.append(match)
            elif query.words:
                return ()
            rows = await connection.fetch(statement, *asked)
        return [KeptTree(*row[:5], text=_around(row[5], query.words) if words else "") for row in rows]

    async def note_untidy(self) -> None:
        """Nothing: the database tidies itself."""

    async def tidy(self) -> bool:
        return False

    async def _begin(self, about: str, besides: str) -> str:
        """Empty some of it, and note by what it is made once it is empty; that note then."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            if is_by(making := await connection.fetchval(_ABOUT, MAKING) or "", about) and making != besides:
                return making
            await connection.execute(f"DELETE FROM {NOTES}")
            if await connection.fetchval(_REMOVE_SOME, "", REMOVED, 0):
                return ""
            making = making_of(about)
            await connection.execute(_NOTE, MAKING, making)
        return making


def _plain(text: str) -> str:
    """The text without case and diacritics; it has as many words between spaces."""
    return _MARKS.sub("", unicodedata.normalize("NFD", text.casefold()))


def _mark(tenant: str) -> str:
    return blake2b(tenant.encode(), digest_size=TENANT_BYTES).hexdigest()


def _fact(tenant: str, fact: str) -> str:
    return f"{_mark(tenant)}f{fact}"


def _words(tenant: str, text: str) -> Iterator[str]:
    """The entries of the words of a text."""
    mark = _mark(tenant)
    for word in dict.fromkeys(_WORD.findall(_plain(text))):
        yield f"{mark}w{word[:WORD_CHARS]}"


def _around(text: str, wanted: Sequence[str]) -> str:
    """The words of a text around the first one that begins as one of these, or with a part of it."""
    plain, words = _plain(text), text.split()
    parts = "|".join(_WORD.findall(_plain(" ".join(wanted))))
    found = re.search(rf"(?<![^\W_])(?:{parts})", plain)
    at = len(plain[: found.start()].split()) if found else 0
    begin = max(0, min(at - AROUND_WORDS // 3, len(words) - AROUND_WORDS))
    end = begin + AROUND_WORDS
    return "…" * (begin > 0) + " ".join(words[begin:end]) + "…" * (end < len(words))
