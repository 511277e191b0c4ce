"""Heads: a number for each shard that its archive and Redis raise together. They show which of both went back in time.

    v1/SHARD/head    the archive's head in JSON: its number, `gone`, which is the number of the last deletion, or of the
                     last move of a conversation that the archive had, when it was written, and the Redis that wrote it

Redis has two numbers for a shard: `raised` was taken to be written to the archive, `known` certainly was. They tell
where something went back:

    `gone` is above `raised`       Redis is an older copy. It may have deleted turns again, and conversations where they
                                   stood before.
    the number is below `known`    The archive is an older copy, or its file was lost. It lacks turns, and may have
                                   deleted ones.

A Redis that lost nothing but the numbers of turns that were archived, as in a crash, has not to be looked through.

An archiver raises the head before the archive is told of a deletion or such a move, and after the archive has what was
written, before Redis strikes out its notes of that. So an older copy of either side has another number.

The head also says which Redis uses the archive: each Redis that joins it has an id of its own (ownership.py).
"""

from enum import Enum, auto
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.codec import decode_record
from store.errors import (
    ArchiveContended,
    ArchiveRefused,
    ArchiveShared,
    ArchiveUnavailable,
    ArchiveWentBack,
    NewerFormat,
)
from store.keys import Keyspace, ShardKeys
from store.redis import scripts
from store.redis.connection import Operation, Server

VERSION = 1
"""The version of a head that this release writes, and the newest that it reads. Each new member takes the next one."""

TRIES = 8
"""How often a head is raised again because somebody else has done that."""

MOST = 1 << 53
"""No head is as high, and no time: Lua's numbers end here."""


class ArchiveHead(msgspec.Struct, frozen=True):
    """The archive's head of a shard: its number, and that of the last deletion. `at` is the store's time in µs. `redis`
    is the id of the Redis that wrote it; it is `released` once one of its services has stopped, and no other has raised
    the head since.
    """

    number: int = 0
    gone: int = 0
    at: int = 0
    redis: str = ""
    released: bool = False
    version: int = VERSION


class Standing(Enum):
    """The result of a comparison."""

    EVEN = auto()
    REDIS_IS_OLDER = auto()
    ARCHIVE_IS_OLDER = auto()


class _Numbers(NamedTuple):
    """The numbers of a shard in Redis."""

    raised: int
    known: int


class _Compared(NamedTuple):
    """The archive's head, with the etag of its value, beside Redis's numbers."""

    head: ArchiveHead
    etag: str | None
    standing: Standing


def key_of(number: int) -> str:
    """The key of the head of a shard, which is beside the trees of the shard."""
    return f"v1/{number:02x}/head"


class Heads:
    """The heads of a store and its archive. All raise StoreUnavailable and ArchiveUnavailable, which is ArchiveRefused
    where the archive's head is none.
    """

    def __init__(self, server: Server, keyspace: Keyspace, archive: Archive) -> None:
        self._server, self._keyspace, self._archive = server, keyspace, archive
        self._read: dict[int, ArchiveHead] = {}
        self.redis = ""
        """The id of this Redis (ownership.py); empty where it doesn't matter whose the archive is."""
        self.silent = ""
        """The id of another one that was watched and does nothing."""

    async def read(self, number: int) -> ArchiveHead:
        """The archive's head of a shard, as it is now."""
        head, _ = await self._now(number)
        return head

    async def standing(self, number: int) -> Standing:
        """The comparison of a shard's heads, by the archive's as it was read last: `read` it first where somebody may
        have put another archive in its place.
        """
        here, head = await self._here(number), self._read.get(number)
        if head is None or head.number < here.known:  # another process may have raised it since
            found = await self._both(number)
            return found.standing
        return Standing.REDIS_IS_OLDER if head.gone > here.raised else Standing.EVEN

    async def raise_(self, number: int, *, gone: bool = False) -> int:
        """Raise the head of a shard on both sides, for a deletion where something is `gone`; a number that the archive
        has reached.

        Raises ArchiveWentBack, ArchiveShared, and ArchiveUnavailable where Redis is older: it is looked through first.
        """
        found = await self._even(number)
        own = await self._take(number, known=found.head.number, gone=found.head.gone, more=1)
        for _ in range(TRIES):
            if (found.head.gone if gone else found.head.number) >= own:  # somebody else has raised it since
                return own
            last = (await self._here(number)).raised  # so the others need not
            if await self._put(number, last, last if gone else found.head.gone, found.etag):
                return last
            found = await self._even(number)
        raise ArchiveContended(f"others have raised its head {TRIES} times meanwhile")

    async def raise_everywhere(self) -> None:
        """Raise the heads of all shards, for a deletion in all of them that the archive has been told of: a copy of it
        from before is known for one. A shard of an older Redis is looked through anyway.
        """
        for number in range(self._keyspace.shards):
            if await self.standing(number) is not Standing.REDIS_IS_OLDER:
                await self.know(number, await self.raise_(number, gone=True))

    async def look_through_again(self) -> None:
        """Raise the heads of all shards above all that Redis knows of: it may have deleted turns again for all that the
        archive knows, and a copy of the archive from before is known for one.
        """
        for number in range(self._keyspace.shards):
            for _ in range(TRIES):
                head, etag = await self._now(number)
                own = max(head.number, (await self._here(number)).raised) + 1
                if await self._put(number, own, own, etag) and (await self._here(number)).raised < own:
                    break
            else:
                raise ArchiveContended(f"others have raised its head {TRIES} times meanwhile")

    async def catch_up(self, number: int) -> None:
        """Note that a shard of Redis has no deleted turns any more, as far as the archive has been told of them."""
        await self._take(number, known=(await self.read(number)).number)

    async def know(self, number: int, known: int) -> None:
        """Note that the archive has reached a number. One that is below it later is an older copy. Raises
        ArchiveUnavailable where Redis is older by now.
        """
        await self._take(number, known=known, gone=self._read[number].gone if number in self._read else 0)

    async def doubt(self, number: int) -> None:
        """Have the archive, if it has a head, be below what is known: an older copy until somebody accepts it."""
        if below := (await self.read(number)).number:
            await self._take(number, known=below + 1)

    async def accept(self, number: int) -> None:
        """Take the archive as it is, though it is an older copy."""
        found = await self._both(number)
        own = await self._take(number, known=found.head.number, more=1)
        if not await self._put(number, own, found.head.gone, found.etag):
            raise ArchiveContended("somebody else has raised its head meanwhile")
        await self.know(number, own)

    async def release(self) -> None:
        """Say that a process of this Redis uses the archive no more; another one says otherwise by raising it."""
        head, etag = await self._now(0)
        if etag is not None and head.redis == self.redis:
            released = msgspec.structs.replace(head, released=True)
            await self._archive.put(key_of(0), msgspec.json.encode(released), only_if=etag)  # a clash: one goes on

    async def _even(self, number: int) -> "_Compared":
        """Both sides, where neither went back. Raises as `raise_`."""
        found = await self._both(number)
        if found.standing is Standing.ARCHIVE_IS_OLDER:
            raise ArchiveWentBack(number, found.head.at)
        if found.standing is Standing.REDIS_IS_OLDER:
            raise went_back(number)
        if self.redis and not found.head.released and found.head.redis not in ("", self.redis, self.silent):
            raise ArchiveShared
        return found

    async def _both(self, number: int) -> "_Compared":
        """Both sides. Others may raise them meanwhile: what was known before is compared, and what was raised after."""
        known = (await self._here(number)).known
        head, etag = await self._now(number)
        raised = (await self._here(number)).raised
        if head.number < known:
            return _Compared(head, etag, Standing.ARCHIVE_IS_OLDER)
        return _Compared(head, etag, Standing.REDIS_IS_OLDER if head.gone > raised else Standing.EVEN)

    async def _here(self, number: int) -> _Numbers:
        found = await self._server.command("HMGET", self._shard(number).archive_head, "raised", "known")
        return _Numbers(*(int(each or 0) for each in found))

    async def _take(self, number: int, *, known: int = 0, gone: int = 0, more: int = 0) -> int:
        """Note what is known, and take a number. A retry after a lost reply takes two, which does no harm. Raises
        ArchiveUnavailable where Redis has not heard of the deletion `gone`: it went back in time a moment ago.
        """
        async with self._server.operation() as operation:
            operation.wrote = True
            word, raised = await scripts.raise_head(operation, self._shard(number), known=known, gone=gone, more=more)
        if word == b"older":
            raise went_back(number)
        return int(raised)

    async def _put(self, number: int, own: int, gone: int, etag: str | None) -> bool:
        at = await self._server.run(Operation.now_us, self._shard(number).clock)
        before = self._read[number]  # a command leaves the archive to that which has it
        redis, released = (self.redis, False) if self.redis else (before.redis, before.released)
        head = ArchiveHead(own, gone, at, redis, released)
        done = await self._archive.put(key_of(number), msgspec.json.encode(head), only_if=etag) is not None
        if done:
            self._read[number] = head
        return done

    async def _now(self, number: int) -> tuple[ArchiveHead, str | None]:
        stored = await self._archive.get(key_of(number))
        head = ArchiveHead() if stored is None else _head_in(key_of(number), stored.value)
        self._read[number] = head
        return head, stored and stored.etag

    def _shard(self, number: int) -> ShardKeys:
        return self._keyspace.all_shards()[number]


def went_back(number: int) -> ArchiveUnavailable:
    """The error of a shard of Redis that is an older copy, and has not been looked through."""
    return ArchiveUnavailable(f"shard {number:02x} of Redis went back in time, and has what was deleted since")


def _head_in(key: str, value: bytes) -> ArchiveHead:
    """The head in a value. Raises ArchiveRefused."""
    try:
        head = decode_record(value, ArchiveHead, VERSION, msgspec.json.decode)
    except NewerFormat as error:
        raise ArchiveRefused(f"a later release wrote {key}, so this one leaves it alone: upgrade this one") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ArchiveRefused(f"{key} is no head: delete it, and have `harmonium archive accept` go on") from error
    if not (0 <= head.gone <= head.number < MOST and 0 <= head.at < MOST):
        raise ArchiveRefused(f"{key} has numbers that can't be: delete it, and have `harmonium archive accept` go on")
    return head
