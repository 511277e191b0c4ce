"""The notes about the archive in a store's shards: it exists, which trees are older than it, it is away, it has ended.

A process with an archive says so in each shard, again and again, as a server may have lost the note. From then on the
shard notes its changes. Trees from before are noted one by one, the least used first.
"""

from collections.abc import Sequence

import msgspec

from store.backup.heads import Heads, Standing
from store.backup.ownership import leave
from store.backup.reading import ShardReader, scan
from store.history.delete import in_pieces
from store.keys import ARCHIVE, Keyspace, ShardKeys, id_of
from store.redis import scripts
from store.redis.connection import Operation, Server

TREES = 50
"""How many trees from before an archive are noted at once in each shard: 25 to 40 ms for chains of ten turns."""

MOST_DUE = 10_000
"""From so many waiting trees on, no more older ones are noted: they take memory as they wait."""

NOTED = 200
"""How many turns one call notes: half a millisecond."""

SCANNED = 1_000
"""How many keys of a server one call looks at: about a millisecond."""

ENDED = 200
"""How many trees one call removes the notes of."""

FULL = "full"
"""The field of the first shard's head in Redis by which the disk of the archive is full."""


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


async def begin_archive(server: Server, keyspace: Keyspace, after_seconds: float) -> None:
    """Have every shard note its changes from now on, to be archived so long after. Raises StoreUnavailable."""
    for shard in keyspace.all_shards():
        await begin_archive_in(server, shard, after_seconds)


async def begin_archive_in(server: Server, shard: ShardKeys, after_seconds: float) -> None:
    """`begin_archive` in one shard."""
    await server.run(scripts.begin_archive, shard, after_ms=round(after_seconds * 1000))


async def note_older(server: Server, keyspace: Keyspace, *, trees: int = TREES, most_due: int = MOST_DUE) -> bool:
    """Note in each shard the next trees from before it had an archive; whether more are left. Without any it costs one
    command a shard.

    It may be called at once by any number of processes, and goes on where the last call ended. Where `most_due` trees
    wait to be archived it notes none, so don't call it again at once. Raises StoreUnavailable.
    """
    left = False
    for shard in keyspace.all_shards():
        left = await _Older(server, shard).note(trees, most_due) or left
    return left


async def note_turns(server: Server, shard: ShardKeys, tree: str, digits: Sequence[str]) -> None:
    """Note that some turns of a tree, TENANT/ROOT, are to be archived. Raises StoreUnavailable."""
    for at in range(0, len(digits), NOTED):
        await server.run(scripts.note_older, shard, tree=tree, members=" ".join(digits[at : at + NOTED]))


async def tell_away(server: Server, keyspace: Keyspace, seconds: float) -> None:
    """For so long, let a full shard evict trees that the archive lacks, which are lost. Raises StoreUnavailable."""
    for shard in keyspace.all_shards():
        await server.command("SET", shard.archive_away, "", "PX", round(seconds * 1000))


async def tell_full(server: Server, keyspace: Keyspace, *, full: bool) -> None:
    """Have all processes know that the disk of the archive is full, or has room again. Raises StoreUnavailable."""
    head = keyspace.all_shards()[0].archive_head
    await server.command(*(("HSET", head, FULL, "") if full else ("HDEL", head, FULL)))


async def is_full(server: Server, keyspace: Keyspace) -> bool:
    """Whether the disk of the archive was full when it was to be written last. Raises StoreUnavailable."""
    return bool(await server.command("HEXISTS", keyspace.all_shards()[0].archive_head, FULL))


async def end_archive(server: Server, keyspace: Keyspace) -> bool:
    """End the archive in all shards, with its notes: trees are evicted as without one, and the store may get another
    archive. Returns whether it had one; where there is none, it costs one row a shard, and a command. Raises
    StoreUnavailable.
    """

    async def end(operation: Operation, shard: ShardKeys) -> bool:
        asked = (("HEXISTS", shard.usage, ARCHIVE), ("EXISTS", shard.older, shard.unarchived))
        if not any(await operation.row(*asked, at=shard.usage)):
            return False
        (word,) = await scripts.end_archive(operation, shard, budget=ENDED)
        return word == b"again"

    await in_pieces(server, keyspace, end)
    return await leave(server, keyspace)  # last, so nobody begins with another amid this


async def waiting(
    server: Server, keyspace: Keyspace, heads: Heads | None = None, *, fences: bool = False
) -> list[Waiting]:
    """The backlog of each shard; also whether the shard is behind, where `heads` are given. Counting
    the `fences` scans all keys of a server. Raises StoreUnavailable, ArchiveUnavailable.
    """
    found = [await waiting_in(server, keyspace, number) for number in range(keyspace.shards)]
    for here, shard in zip(found, keyspace.all_shards(), strict=True):
        if heads is not None:
            here.behind = await heads.standing(here.shard) is Standing.REDIS_IS_OLDER
        if fences:
            pages = scan(server, "SCAN", match=f"{shard.all_fences}*", count=SCANNED, at=shard.clock)
            here.fences = sum([len(page) async for page in pages])
    return found


async def failed_trees(server: Server, keyspace: Keyspace, most: int) -> list[Failed]:
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


async def waiting_in(server: Server, keyspace: Keyspace, number: int) -> Waiting:
    """The backlog of one shard. Raises StoreUnavailable."""
    shard = keyspace.all_shards()[number]
    async with server.operation() as operation:
        after = await operation.command("HGET", shard.usage, ARCHIVE)
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


class _Older:
    """Notes the trees of a shard that were there before it had an archive."""

    def __init__(self, server: Server, shard: ShardKeys) -> None:
        self._server, self._shard = server, shard
        self._reader = ShardReader(server, shard)

    async def note(self, trees: int, most_due: int) -> bool:
        """Note the next trees; whether there are more."""
        async with self._server.operation() as operation:
            before = await operation.command("GET", self._shard.older)
            if before is None:
                return False
            if await operation.command("ZCARD", self._shard.unarchived) >= most_due:
                return True
        page, after = await self._next(before.decode(), trees)
        for tree in page:
            async for path in self._reader.paths(tree):
                await note_turns(self._server, self._shard, tree, [node.digits for node in path])
        await self._server.run(scripts.pass_older, self._shard, before=before.decode(), after=after)
        return after != ""

    async def _next(self, before: str, most: int) -> tuple[list[str], str]:
        """The trees used after some moment, the earliest first, with all those used at the last one of these; and that
        moment, or '' where these are all.
        """
        while True:
            async with self._server.operation() as operation:
                found = await operation.command(
                    *("ZRANGE", self._shard.trees, f"({before}", "+inf", "BYSCORE", "LIMIT", 0, most + 1, "WITHSCORES")
                )
            uses = {member.decode(): score.decode() for member, score in zip(found[::2], found[1::2], strict=True)}
            if len(uses) <= most:
                return list(uses), ""
            *earlier, last = uses.values()
            if earlier[0] != last:
                whole = [member for member, score in uses.items() if score != last]
                return whole, uses[whole[-1]]
            most *= 2  # they were all used at once
