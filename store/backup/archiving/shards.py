"""The notes about the archive in a store's shards: it exists, which trees are older than it, it is away, it has ended.

A process with an archive says so in each shard, again and again, as a server may have lost the note. From then on the
shard notes its changes. Trees from before are noted one by one, the least used first.
"""

from collections.abc import AsyncGenerator

from store.backup.ownership import leave
from store.backup.reading import ABOVE, ShardReader
from store.history.delete import in_pieces
from store.keys import Keyspace, ShardKeys, TurnKeys
from store.redis import scripts
from store.redis.connection import Operation, Server

TREES = 50
"""How many trees from before an archive are noted at once in each shard: 25 to 40 ms for chains of ten turns."""

MOST_DUE = 10_000
"""From so many waiting trees on, no more older ones are noted: they take memory as they wait."""

NOTED = 200
"""How many turns one call notes: half a millisecond."""

TIPS = 250
"""How many turns without children one call looks for."""

ROUNDS = 3
"""How often a tree is looked through that is used meanwhile."""

ENDED = 200
"""How many trees one call removes the notes of."""


async def begin_archive(server: Server, keyspace: Keyspace, after_seconds: float) -> None:
    """Have every shard note its changes from now on, to be archived so long after. Raises StoreUnavailable."""
    for shard in keyspace.all_shards():
        await begin_archive_in(server, shard, after_seconds)


async def begin_archive_in(server: Server, shard: ShardKeys, after_seconds: float) -> None:
    """`begin_archive` in one shard."""
    async with server.operation() as operation:
        await scripts.begin_archive(operation, shard, after_ms=round(after_seconds * 1000))


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


async def tell_away(server: Server, keyspace: Keyspace, seconds: float) -> None:
    """For so long, let a full shard evict trees that the archive lacks, which are lost. Raises StoreUnavailable."""
    for shard in keyspace.all_shards():
        async with server.operation() as operation:
            await operation.command("SET", shard.archive_away, "", "PX", round(seconds * 1000))


async def end_archive(server: Server, keyspace: Keyspace) -> bool:
    """End the archive in all shards, with its notes: trees are evicted as without one, and the store may get another
    archive. Returns whether it had one; where there is none, it costs one command a shard, and one. Raises
    StoreUnavailable.
    """

    async def end(operation: Operation, shard: ShardKeys) -> bool:
        if not await operation.command("EXISTS", shard.archive, shard.older, shard.unarchived):
            return False
        (word,) = await scripts.end_archive(operation, shard, budget=ENDED)
        return word == b"again"

    await in_pieces(server, keyspace, end)
    return await leave(server, keyspace)  # last, so nobody begins with another amid this


class _Older:
    """Notes the trees of a shard that were there before it had an archive."""

    def __init__(self, server: Server, shard: ShardKeys) -> None:
        self._server, self._shard = server, shard
        self._reader = ShardReader(server, shard, 0)

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
            await self._note_tree(tree)
        async with self._server.operation() as operation:
            await scripts.pass_older(operation, self._shard, before=before.decode(), after=after)
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

    async def _note_tree(self, tree: str) -> None:
        """Note all turns of a tree, again if it was used meanwhile, as some may have been missed."""
        for _ in range(ROUNDS):
            used, last = await self._used(tree), ""
            async for turns in self._turns(tree):
                async with self._server.operation() as operation:
                    _, found = await scripts.note_older(operation, self._shard, tree=tree, members=" ".join(turns))
                last = found.decode()
            if not last or last == used:
                return

    async def _used(self, tree: str) -> str:
        async with self._server.operation() as operation:
            return (await operation.command("ZSCORE", self._shard.trees, tree) or b"").decode()

    async def _turns(self, tree: str) -> AsyncGenerator[list[str]]:
        """The digits of all turns of a tree, some at a time."""
        tenant, known, some = tree.partition("/")[0], set[str](), list[str]()
        async for end in self._ends(tree):
            digits: str | None = end
            while digits is not None and digits not in known:
                (path,) = await self._reader.describe([f"{tenant}/{digits}"], ABOVE)
                digits = path[-1].parent if path else None
                for node in path:
                    if node.digits in known:
                        digits = None
                        break
                    known.add(node.digits)
                    some.append(node.digits)
                while len(some) >= NOTED:
                    yield some[:NOTED]
                    del some[:NOTED]
        if some:
            yield some

    async def _ends(self, tree: str) -> AsyncGenerator[str]:
        """The digits of the turns of a tree without children, and of those under way."""
        tenant, _, root = tree.partition("/")
        keys, cursor = TurnKeys(self._shard, tenant, root), "0"
        while True:
            async with self._server.operation() as operation:
                word, *told = await scripts.tips(operation, keys, cursor=cursor, most=TIPS, idle_us=0)
            if word == b"missing":
                return
            *_, next_cursor, ends = (each.decode() for each in told)
            for end in ends.split():
                yield end.partition("=")[0]
            if (cursor := next_cursor) == "0":
                return
