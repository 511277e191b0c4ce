"""Memory: the trees in Redis, to be compared with an archive's, and those that it still lacks. Nothing here counts as
use.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from store.backup.archiving.archiver import HERE
from store.backup.heads import Heads, Standing
from store.backup.reading import GONE_TOO, TURNS, Node, ShardReader, scan
from store.keys import Keyspace, ShardKeys, digits_of, id_of, shard_of
from store.redis import scripts
from store.redis.connection import Server
from store.turn import TERMINAL

SCANNED = 1_000
"""How many keys of a server one call looks at: about a millisecond."""


class Held(NamedTuple):
    """A turn as memory has it: its digits, its digest, and whether it is deleted."""

    digits: str
    digest: str
    deleted: bool


class Waiting(msgspec.Struct):
    """The backlog of a shard: how many trees wait to be archived, and for how many seconds the first has waited.

    With no archive `noted` is false: nothing waits, and nothing will. `failed` is how many of the trees could not be
    archived as they are, and are tried again later. `behind` is whether the shard went back in time, and may have
    deleted turns again; None where that was not asked. `fences` is how many turns and trees were deleted within the
    last minute and are gone from the archive; None where they were not counted.
    """

    shard: int
    noted: bool
    trees: int = 0
    oldest_seconds: float = 0.0
    failed: int = 0
    fences: int | None = None
    behind: bool | None = None


class Failed(msgspec.Struct, frozen=True):
    """A tree that could not be archived as it is, and why."""

    tenant: str
    root: str
    reason: str


class Memory:
    """Reads the trees of a store. All raise StoreUnavailable."""

    def __init__(self, server: Server, keyspace: Keyspace, turns_per_second: float = 0.0) -> None:
        """`turns_per_second` is the pace; 0 is as fast as the server answers."""
        self.keyspace = keyspace
        self._server, self._turns_per_second = server, turns_per_second

    async def unjudged(self) -> list[int]:
        """The shards that nobody has told of an archive yet, or in which trees from before it aren't all noted: a turn
        of these that the archive lacks is no fault.
        """
        found: list[int] = []
        for number, shard in enumerate(self.keyspace.all_shards()):
            told, older = await self._server.row(("GET", shard.archive), ("GET", shard.older))
            if told is None or older is not None:
                found.append(number)
        return found

    async def trees(self, number: int) -> AsyncGenerator[tuple[str, str]]:
        """The tenant and the digits of the root of each tree of a shard, in no order."""
        async for members in ShardReader(self._server, self.keyspace.all_shards()[number], 0).names():
            for member in members:
                tenant, _, root = member.partition("/")
                yield tenant, root

    async def number_of_trees(self) -> int:
        """How many trees there are."""
        shards = self.keyspace.all_shards()
        return sum([int(await self._server.command("HGET", shard.usage, "trees") or 0) for shard in shards])

    async def turns(self, tenant: str, root: str) -> AsyncGenerator[list[Held]]:
        """The turns of a tree that have ended, some at a time."""
        reader = ShardReader(self._server, self.keyspace.shard(root), self._turns_per_second)
        async with aclosing(reader.some([f"{tenant}/{root}"])) as pieces:
            async for piece in pieces:
                yield [Held(digits_of(turn.id), turn.digest, turn.deleted) for turn in piece.turns]

    async def held(self, tenant: str, digits: Sequence[str]) -> dict[str, Held]:
        """Those of some turns of one shard that are there and have ended, deleted ones that others continue among
        them.
        """
        nodes = await self.nodes(tenant, digits)
        ended = {at: node for at, node in nodes.items() if node.status in TERMINAL}
        return {at: Held(at, node.digest, node.deleted) for at, node in ended.items()}

    async def nodes(self, tenant: str, digits: Sequence[str], idle_us: int = GONE_TOO) -> dict[str, Node]:
        """The nodes of some turns of one shard, of those that are there in any state."""
        if not digits or shard_of(digits[0]) >= self.keyspace.shards:
            return {}
        return await ShardReader(self._server, self.keyspace.shard(digits[0]), 0).nodes(tenant, digits, idle_us)

    async def noted(self, tenant: str, root: str, digits: str) -> bool:
        """Whether it is noted that the archive lacks a turn of a tree."""
        changes = self.keyspace.shard(root).changes_of(tenant, root)
        return await self._server.command("ZSCORE", changes, HERE + digits) is not None

    async def note(self, tenant: str, root: str, digits: Sequence[str]) -> int:
        """Have turns of a tree archived again; how many of them are noted now."""
        shard, tree = self.keyspace.shard(root), f"{tenant}/{root}"
        for at in range(0, len(digits), TURNS):
            some = " ".join(digits[at : at + TURNS])
            await self._server.run(scripts.note_older, shard, tree=tree, members=some)
        return sum([await self.noted(tenant, root, each) for each in digits])

    async def note_tree(self, tenant: str, root: str) -> int:
        """Have all turns of a tree archived again; how many are noted now."""
        pieces = self.turns(tenant, root)
        return sum([await self.note(tenant, root, [each.digits for each in some]) async for some in pieces])


async def waiting(
    server: Server, keyspace: Keyspace, heads: Heads | None = None, *, fences: bool = False
) -> list[Waiting]:
    """The backlog of each shard; also whether the shard is behind, where `heads` are given. Counting
    the `fences` scans all keys of a server. Raises StoreUnavailable, ArchiveUnavailable.
    """
    found = [await _waiting(server, shard, number) for number, shard in enumerate(keyspace.all_shards())]
    for here, shard in zip(found, keyspace.all_shards(), strict=True):
        if heads is not None:
            here.behind = await heads.standing(here.shard) is Standing.REDIS_IS_OLDER
        if fences:
            pages = scan(server, "SCAN", match=f"{shard.all_fences}*", count=SCANNED, at=shard.clock)
            here.fences = sum([len(page) async for page in pages])
    return found


async def failed(server: Server, keyspace: Keyspace, most: int) -> list[Failed]:
    """Some of the trees that could not be archived. Raises StoreUnavailable."""
    found: list[Failed] = []
    for shard in keyspace.all_shards():
        async for some in scan(server, "HSCAN", shard.archive_failed, count=most):
            for member, reason in zip(some[::2], some[1::2], strict=True):
                tenant, _, root = member.decode().partition("/")
                found.append(Failed(tenant, id_of(root), reason.decode()))
            if len(found) >= most:
                return found[:most]
    return found


async def _waiting(server: Server, shard: ShardKeys, number: int) -> Waiting:
    async with server.operation() as operation:
        after = await operation.command("GET", shard.archive)
        if after is None:
            return Waiting(number, noted=False)
        now = await operation.now_us(shard.clock) // 1000
        count = await operation.command("ZCARD", shard.unarchived)
        # one that was moved to the front to make room has 0 for its time
        args = ("ZRANGE", shard.unarchived, 1, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
        first = await operation.command(*args)
        failures = await operation.command("HLEN", shard.archive_failed)
    lag = max(0.0, (now - (float(first[1]) - int(after))) / 1000) if first else 0.0
    return Waiting(number, True, int(count), round(lag, 3), int(failures))
