"""Memory: the trees in Redis, to be compared with an archive's. Nothing here counts as use."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import monotonic

from store.backup.archiving.archiver import HERE
from store.backup.archiving.shards import note_turns
from store.backup.reading import BROKEN, GONE_TOO, Node, ShardReader, pause
from store.history.delete import ERASED, FORGOTTEN
from store.keys import ARCHIVE, Keyspace, shard_of
from store.redis.connection import Server


class Memory:
    """Reads the trees of a store. All raise StoreUnavailable."""

    def __init__(self, server: Server, keyspace: Keyspace, turns_per_second: float = 0.0) -> None:
        """`turns_per_second` is the pace; 0 is as fast as the server answers."""
        self.keyspace = keyspace
        self._server, self._turns_per_second = server, turns_per_second

    async def unjudged_shards(self) -> list[int]:
        """The shards that nobody has told of an archive yet, or in which trees from before it aren't all noted: a turn
        of these that the archive lacks is no fault.
        """
        found: list[int] = []
        for number, shard in enumerate(self.keyspace.all_shards()):
            told, older = await self._server.row(("HGET", shard.usage, ARCHIVE), ("GET", shard.older))
            if told is None or older is not None:
                found.append(number)
        return found

    async def trees(self, number: int, tenant: str | None = None) -> AsyncGenerator[tuple[str, str]]:
        """The tenant and the digits of the root of each tree of a shard, or of a tenant's there, in no order."""
        async for member in ShardReader(self._server, self.keyspace.all_shards()[number]).members(tenant):
            whose, _, root = member.partition("/")
            yield whose, root

    async def number_of_trees(self) -> int:
        """How many trees there are."""
        shards = self.keyspace.all_shards()
        return sum([int(await self._server.command("HGET", shard.usage, "trees") or 0) for shard in shards])

    async def turns(self, tenant: str, root: str) -> AsyncGenerator[list[Node]]:
        """The turns of a tree that have ended, some at a time."""
        reader = ShardReader(self._server, self.keyspace.shard(root))
        async with aclosing(reader.paths(f"{tenant}/{root}")) as paths:
            async for path in paths:
                began = monotonic()
                yield [node for node in path if not node.fleeting and node.status != BROKEN]
                await pause(self._turns_per_second, len(path), began)

    async def nodes(self, tenant: str, digits: Sequence[str], idle_us: int = GONE_TOO) -> dict[str, Node]:
        """The nodes of some turns of one shard, of those that are there in any state."""
        if not digits or shard_of(digits[0]) >= self.keyspace.shards:
            return {}
        return await ShardReader(self._server, self.keyspace.shard(digits[0])).nodes(tenant, digits, idle_us)

    async def changed_at(self, tenant: str, root: str, digits: str) -> int:
        """When a turn of a tree changed or was deleted, in µs, so that the archive lacks that; 0 where it lacks nothing
        of it.
        """
        changes = self.keyspace.shard(root).changes_of(tenant, root)
        members = [kind + digits for kind in (HERE, FORGOTTEN, ERASED)]
        return max(int(score or 0) for score in await self._server.command("ZMSCORE", changes, *members))

    async def note(self, tenant: str, root: str, digits: Sequence[str]) -> int:
        """Have turns of a tree archived again; how many of them are noted now."""
        await note_turns(self._server, self.keyspace.shard(root), f"{tenant}/{root}", digits)
        return sum([await self.changed_at(tenant, root, each) > 0 for each in digits])

    async def note_tree(self, tenant: str, root: str) -> int:
        """Have all turns of a tree archived again; how many are noted now."""
        pieces = self.turns(tenant, root)
        return sum([await self.note(tenant, root, [each.digits for each in some]) async for some in pieces])
