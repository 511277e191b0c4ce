"""A store with an archive behind it, as a service has both, and the archives that are measured with."""

import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from rich.progress import Progress

from bench._rig import Server
from store.archive.archive import Archive
from store.archive.port import Bounds
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciler
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.archive import servers
from tests.support.archive.opened import Place, open_at
from tests.support.ports import free_port
from tests.support.waiting import wait_until

BOUNDS = Bounds(total_seconds=60.0, request_seconds=60.0, connect_seconds=5.0)
"""Nothing fails here because the machine is busy."""


LINK_SECONDS = 0.025
"""The round trip of a link to an object store that is simulated."""

LINK_RATIO, LINK_MORE = 1.3, 0.010


def most_over_link() -> float:
    """The most seconds that something may take over the link at the median, which needs one round trip."""
    return LINK_RATIO * LINK_SECONDS + LINK_MORE


class Bench(NamedTuple):
    """How to measure: on which kind of Redis, in short or not, and where progress is shown."""

    redis: str
    quick: bool
    progress: Progress

    def few(self, many: int, few: int) -> int:
        """One or the other."""
        return few if self.quick else many


class Opened(NamedTuple):
    """A store and its archive."""

    store: ConversationHistoryStore
    archive: Archive
    archiving: StoreArchive

    async def archive_all(self) -> None:
        """Archive all that is noted."""
        while (await self.archiving.archive_due()).trees:
            pass


@asynccontextmanager
async def opened(redis: Server, place: Place, caps: Caps | None = None) -> AsyncGenerator[Opened]:
    """A store on a Redis, with an archive to which everything goes at once."""
    store = ConversationHistoryStore(connect(redis.url), caps=caps or Caps(), timeout_seconds=30)
    archive = open_at(place, BOUNDS)
    archiving = StoreArchive(store, archive, reconcile=Reconciler(store, archive).shard, after_seconds=0)
    await archiving.open()
    while await archiving.note():
        pass
    try:
        yield Opened(store, archive, archiving)
    finally:
        await archiving.close()
        await store.close()


def disk_bytes(place: Place) -> int | None:
    """How many bytes an archive has taken of its disk; None where it has none."""
    if place.kind == "sqlite":
        return sum(entry.stat().st_size for entry in os.scandir(place.url.removeprefix("sqlite://")))
    return None


@contextmanager
def bucket() -> Iterator[Place]:
    """The least server, in a process of its own."""
    port = free_port()
    with servers.running([sys.executable, "-m", "bench._bucket", str(port)]):
        wait_until(lambda: servers.listens(port), passing=OSError)
        yield Place("s3", f"s3://{servers.BUCKET}", port, servers.access(port))
