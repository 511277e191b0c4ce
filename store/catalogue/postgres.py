"""A catalogue in Postgres: its tables, made on first use where they are missing, with an index of entries (GIN).

Deleted rows leave the table and its index with the server's own vacuum.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from store.archive.port import Bounds
from store.archive.postgres import PostgresTable
from store.catalogue.catalogue import NOTES, TABLE
from store.errors import ArchiveRefused

FORMAT = 1
PENDING_KIB = 256
"""How much waits to be put into the index, which each search reads: a millisecond or two."""

_MADE = (
    f"""CREATE TABLE {TABLE} (
        place text COLLATE "C" PRIMARY KEY, tenant text COLLATE "C" NOT NULL, tree text COLLATE "C" NOT NULL,
        version text NOT NULL, used bigint NOT NULL, root text NOT NULL, newest text NOT NULL, shown bytea,
        words text NOT NULL, found tsvector NOT NULL
    )""",
    f"CREATE INDEX {TABLE}_used ON {TABLE} (tenant, used, tree) WHERE shown IS NOT NULL",
    f"CREATE INDEX {TABLE}_found ON {TABLE} USING gin (found) WITH (gin_pending_list_limit = {PENDING_KIB})",
    f"CREATE TABLE {NOTES} (name text PRIMARY KEY, value text NOT NULL)",
    f"INSERT INTO {NOTES} VALUES ('format', '{FORMAT}')",
)
_NEWER = f"SELECT value::int > $1 FROM {NOTES} WHERE name = 'format'"


class PostgresCatalogue(PostgresTable):
    """The database of a catalogue; `url` as libpq has it."""

    found, counted = "array_to_tsvector(string_to_array($10, ' '))", f"{TABLE} WHERE found @@ $1::text::tsquery"
    few, many = "found @@ $6::text::tsquery", "ts_match_vq(found, $6::text::tsquery)"
    """`ts_match_vq` is `@@` without its index."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        super().__init__(url, bounds, TABLE, _MADE)

    def question(self, wanted: Mapping[str, bool]) -> str:
        return " & ".join(f"'{entry}'{':*' * is_beginning}" for entry, is_beginning in wanted.items())

    async def read(self, statement: str, *values: object) -> Sequence[Any]:
        async with self.connection() as connection:
            return await connection.fetch(statement, *values)

    search = write = read

    async def tidy(self) -> bool:
        """False: the database tidies itself."""
        return False

    async def _prepare(self, connection: Any) -> None:
        await super()._prepare(connection)
        if await connection.fetchval(_NEWER, FORMAT):
            remedy = f"drop it and {NOTES}: the service makes them again"
            raise ArchiveRefused(f"the table {TABLE} was written by a later release; {remedy}")
