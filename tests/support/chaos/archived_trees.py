"""Trees of which an archive has a part, and what has to be true of them when somebody has died."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from service.settings.core import DEFAULT_TENANT
from store.archive.archive import Archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.parts import PART_BYTES, decode
from store.backup.archiving.store_archive import StoreArchive
from store.backup.heads import key_of
from store.backup.upkeep.reconciling import Reconciler
from store.backup.upkeep.verifying import Verify
from store.backup.upkeep.walking import entries
from store.errors import ArchiveUnavailable, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from tests.support.archive.kept import lose
from tests.support.archive.steps import At, tell_of_steps
from tests.support.store.sample import grow
from tests.support.store.verdict import faults
from tests.support.waiting import until

SECONDS = 60.0
LONG_BYTES = PART_BYTES // 5
"""How long a text is of which a turn has three copies."""

ROOM_SECONDS = 15.0
"""How long an operation may take with many others on the same cores."""


class Trees:
    """A store, its archive, and what a tenant knows of its conversations."""

    def __init__(self, url: str, prefix: str, archive: Archive) -> None:
        self.url, self.prefix = url, prefix
        self.history = ConversationHistoryStore(connect(url), prefix=prefix, timeout_seconds=ROOM_SECONDS)
        self.archive = StoreArchive(
            self.history, archive, reconcile=Reconciler(self.history, archive).shard, after_seconds=0
        )
        redis = connect(url)
        assert isinstance(redis, Redis)
        self.redis = redis
        self.paths: dict[str, list[str]] = {}
        """The path to each turn that is there."""
        self.gone: set[str] = set()

    async def begin(self, *, large: bool) -> None:
        """Grow conversations, archive them, and change them; one is `large`."""
        await self.archive.note()
        for number in range(2):
            await self._grow(None, f"kept {number}", "two", "three")
        self.forked, self.cut, self.dropped = [await self._grow(None, "one", "two", "three") for _ in range(3)]
        in_parts = await self._grow(None, _long(), _long()) if large else []
        cut_in_parts = await self._grow(None, _long(), _long(), _long()) if large else []
        dropped_in_parts = await self._grow(None, _long(), _long(), "three") if large else []
        await self.archive_all()
        await self._grow(self.forked[0], "a fork", "of two")
        if in_parts:
            await self._grow(in_parts[-1], _long(), "and an answer")  # in a second part
            await self.forget(cut_in_parts[1])
            await self.forget(cut_in_parts[2])
            await self._forget_tree(dropped_in_parts)
        await self._grow(None, "new", "and its answer")
        await self.forget(self.forked[2])
        await self.forget(self.cut[1])  # which its child continues
        await self._forget_tree(self.dropped)

    async def begin_before(self) -> None:
        """Grow conversations in a store that nobody has told of its archive."""
        for number in range(3):
            one, *_ = await self._grow(None, f"one {number}", "two", "three")
            await self._grow(one, "a fork")
        await self.forget(one)

    async def _grow(self, parent: str | None, *names: str) -> list[str]:
        ids = await grow(self.history, *names, parent=parent, tenant=DEFAULT_TENANT)
        path = self.paths[parent] if parent else []
        for number, id in enumerate(ids, 1):
            self.paths[id] = [*path, *ids[:number]]
        return ids

    async def forget(self, id: str) -> None:
        """Delete a turn, and know of it."""
        await self.history.forget(DEFAULT_TENANT, id)
        self.is_gone(id)

    async def _forget_tree(self, ids: list[str]) -> None:
        await self.history.forget_tree(DEFAULT_TENANT, ids[-1])
        for id in ids:
            self.is_gone(id)

    def is_gone(self, id: str) -> None:
        del self.paths[id]
        self.gone.add(id)

    def tree_of(self, id: str) -> list[str]:
        """All turns that are there of the tree of one."""
        return [each for each, path in self.paths.items() if path[0] == self.paths[id][0]]

    async def end_lease(self) -> None:
        """It is long ago that anybody said that it archives."""
        await self.redis.delete(f"{self.prefix}:{{00}}:archiver")

    async def archive_all(self) -> None:
        """Archive until nothing waits any more, whoever died with a lease or is away for now."""
        await self.end_lease()
        while await self.archive.note():
            pass

        async def all_archived() -> bool:
            left = await self.archive.archive_due()
            return not left.trees

        await until(all_archived, SECONDS, "some are not archived", passing=(ArchiveUnavailable, StoreUnavailable))

    @asynccontextmanager
    async def another(self, archive: Archive, at: At) -> AsyncIterator[StoreArchive]:
        """What another process has of the same store and `archive`, and tells of each of its steps."""
        history = ConversationHistoryStore(connect(self.url), prefix=self.prefix, timeout_seconds=ROOM_SECONDS)
        made = StoreArchive(history, archive, reconcile=Reconciler(history, archive).shard, after_seconds=0)
        tell_of_steps(made, at)
        try:
            yield made
        finally:
            await made.close()
            await history.close()

    async def leave_memory(self) -> None:
        """Have all that is archived leave Redis, as the least used does."""
        await lose(self.redis, self.prefix)

    async def check(self) -> None:
        """Both have what they should, and the archive alone has every turn that is there, and none that was deleted."""
        assert await faults(self.redis, self.url, self.prefix) == []
        verify = Verify(self.archive.archive, self.history)
        report = [each async for each in verify.run(most=None, repair=False)][-1]
        assert report.found == 0, report.faults
        await self._check_values()
        await self.leave_memory()
        turns = ArchivedTurns(self.history, self.archive.archive)
        for id, path in self.paths.items():
            way = await turns.way(DEFAULT_TENANT, digits_of(id))
            assert way is not None, id
            assert [each.id for each in way.turns] == path
        for id in self.gone:
            assert await turns.way(DEFAULT_TENANT, digits_of(id)) is None

    async def _check_values(self) -> None:
        """No value of the archive has the response of a deleted turn, or its messages where nothing continues it."""
        above = {id for path in self.paths.values() for id in path}
        async for entry in entries(self.archive.archive, "v1/00/"):
            found = await self.archive.archive.get(entry.key)
            assert found is not None
            for kept in () if entry.key == key_of(0) else decode(found.value).turns:
                if kept.id in self.gone:
                    assert kept.response is None, entry.key
                    assert kept.id in above, entry.key

    async def close(self) -> None:
        await self.archive.close()
        await self.history.close()
        await self.redis.aclose()


def _long() -> str:
    """A text of which a turn is more than half a part, and that can't be packed."""
    return secrets.token_hex(LONG_BYTES // 2)


@asynccontextmanager
async def trees(
    url: str, prefix: str, archive: Archive, *, older: bool = False, large: bool = False
) -> AsyncIterator[Trees]:
    """Trees of which a part has changed since they were archived, perhaps a `large` one, which has several parts in the
    archive; `older` ones were there before it.
    """
    made = Trees(url, prefix, archive)
    try:
        await (made.begin_before() if older else made.begin(large=large))
        yield made
    finally:
        await made.close()
