"""An archive in Postgres: one table, partitioned by a hash of the key, made on first use where it is missing.

Backups, replicas and who may connect are the operator's, as is the role's right to make the table. Values are stored as
they come: they are compressed already.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from store.archive.port import ArchiveEntry, Bounds, Stored, end_of, new_etag
from store.errors import ArchiveRefused, ArchiveUnavailable

driver = cast(Any, asyncpg)
"""It says nothing of its types."""

TABLE = "harmonium_archive"
PARTITIONS = 8
CONNECTIONS = 10
"""How many a process has at most."""

CLOSE_SECONDS = 1.0
"""How long a farewell to the server may take."""

LOCK = 0x6861726D
"""The advisory lock of the process that makes the table."""

_MADE = (
    f"""CREATE TABLE {TABLE} (
        key text COLLATE "C" PRIMARY KEY,
        etag text NOT NULL,
        changed timestamptz NOT NULL DEFAULT now(),
        value bytea NOT NULL
    ) PARTITION BY HASH (key)""",
    f"ALTER TABLE {TABLE} ALTER value SET STORAGE EXTERNAL",
    *(
        f"CREATE TABLE {TABLE}_{part} PARTITION OF {TABLE} FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {part})"
        for part in range(PARTITIONS)
    ),
)
_GET = f"SELECT value, etag FROM {TABLE} WHERE key = $1"
_CREATE = f"INSERT INTO {TABLE} (key, value, etag) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING etag"
_REPLACE = f"UPDATE {TABLE} SET value = $2, etag = $3, changed = now() WHERE key = $1 AND etag = $4 RETURNING etag"
_DELETE = f"DELETE FROM {TABLE} WHERE key = ANY($1)"
_LIST = f"""SELECT key, octet_length(value), extract(epoch FROM changed)::float8, etag FROM {TABLE}
    WHERE key > $1 AND key >= $2 AND key < $3 ORDER BY key LIMIT $4"""

_RISKS = {
    "fsync": "fsync is off: a crash of the server's machine may destroy the archive",
    "synchronous_commit": "synchronous_commit is off: a crash of the server loses the last writes",
}

_HOPELESS: tuple[type[Exception], ...] = (
    driver.InvalidAuthorizationSpecificationError,
    driver.InvalidCatalogNameError,
    driver.InsufficientPrivilegeError,
    driver.DiskFullError,
    driver.UndefinedTableError,
    driver.UndefinedColumnError,
)
"""The errors that last until somebody does something."""


class PostgresTable:
    """A table in a database, which is `made` by some statements; `url` as libpq has it."""

    def __init__(self, url: str, bounds: Bounds, table: str, made: Collection[str]) -> None:
        self._url, self._bounds = url, bounds
        self._table, self._made = table, made
        self._opening = asyncio.Lock()
        self._pool: Any = None
        self._warnings: tuple[str, ...] = ()

    def warnings(self) -> Sequence[str]:
        return self._warnings

    async def close(self) -> None:
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), CLOSE_SECONDS)
            except TimeoutError:
                self._pool.terminate()
            self._pool = None

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Any]:
        """A connection to a database that has the table. One that fails or is given up is closed at once, since the
        answer may never come.
        """
        try:
            pool = await self._ready()
            connection = await pool.acquire()
            try:
                yield connection
            except BaseException:
                connection.terminate()
                raise
            finally:
                await pool.release(connection)
        except _HOPELESS as error:
            raise ArchiveRefused(f"Postgres refuses: {error}") from error
        except (driver.PostgresError, driver.InterfaceError, driver.InternalClientError, OSError) as error:
            raise ArchiveUnavailable(f"Postgres can't be asked: {str(error) or type(error).__name__}") from error

    async def _ready(self) -> Any:
        """The connections, once the table is there."""
        async with self._opening:
            if self._pool is None:
                bounds = self._bounds
                connection = await driver.connect(self._url, timeout=bounds.connect_seconds)
                try:
                    await self._prepare(connection)
                finally:
                    connection.terminate()
                self._pool = driver.create_pool(
                    self._url,
                    min_size=0,
                    max_size=CONNECTIONS,
                    timeout=bounds.connect_seconds,
                    command_timeout=bounds.request_seconds,
                )
                await self._pool
        return self._pool

    async def _prepare(self, connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            if await connection.fetchval("SELECT to_regclass($1)::text", self._table) is None:
                for statement in self._made:
                    await connection.execute(statement)
        found = await connection.fetch(
            "SELECT name FROM pg_settings WHERE setting = 'off' AND name = ANY($1)", list(_RISKS)
        )
        self._warnings = tuple(_RISKS[name] for (name,) in found)


class PostgresBackend(PostgresTable):
    """The table of an archive."""

    def __init__(self, url: str, bounds: Bounds) -> None:
        super().__init__(url, bounds, TABLE, _MADE)

    async def get(self, key: str) -> Stored | None:
        async with self.connection() as connection:
            row = await connection.fetchrow(_GET, key)
        return row and Stored(*row)

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        etag = new_etag()
        async with self.connection() as connection:
            if only_if is None:
                return await connection.fetchval(_CREATE, key, value, etag)
            return await connection.fetchval(_REPLACE, key, value, etag, only_if)

    async def delete(self, keys: Sequence[str]) -> None:
        async with self.connection() as connection:
            await connection.execute(_DELETE, list(keys))

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        async with self.connection() as connection:
            return [ArchiveEntry(*row) for row in await connection.fetch(_LIST, after, prefix, end_of(prefix), limit)]
