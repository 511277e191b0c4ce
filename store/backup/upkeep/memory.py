"""Memory: the trees in Redis, to be compared with an archive's. Nothing here counts as use."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from store.backup.archiving.archiver import HERE
from store.backup.reading import TURNS, ShardReader
from store.keys import Keyspace, digits_of
from store.redis import scripts
from store.redis.connection import Server
from store.turn import TERMINAL

NAMES = 500
"""How many trees of a shard are named at once."""


class Held(NamedTuple):
    """A turn as memory has it: its digits, its digest, and whether it is deleted."""

    digits: str
    digest: str
    deleted: bool


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
            async with self._server.operation() as operation:
                told = await operation.command("GET", shard.archive)
                older = await operation.command("GET", shard.older)
            if told is None or older is not None:
                found.append(number)
        return found

    async def trees(self, number: int) -> AsyncGenerator[tuple[str, str]]:
        """The tenant and the digits of the root of each tree of a shard, in no order."""
        shard = self.keyspace.all_shards()[number]
        cursor: bytes | int = 0
        while cursor != b"0":
            async with self._server.operation() as operation:
                cursor, found = await operation.command("ZSCAN", shard.trees, cursor, "COUNT", NAMES)
            for member in found[::2]:
                tenant, _, root = member.decode().partition("/")
                yield tenant, root

    async def number_of_trees(self) -> int:
        """How many trees there are."""
        found = 0
        for shard in self.keyspace.all_shards():
            async with self._server.operation() as operation:
                (trees,) = await operation.command("HMGET", shard.usage, "trees")
            found += int(trees or 0)
        return found

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
        if not digits or int(digits[0][:2], 16) >= self.keyspace.shards:
            return {}
        reader = ShardReader(self._server, self.keyspace.shard(digits[0]), 0)
        found: dict[str, Held] = {}
        for at in range(0, len(digits), TURNS):
            for path in await reader.describe([f"{tenant}/{each}" for each in digits[at : at + TURNS]]):
                if path and path[0].status in TERMINAL:
                    found[path[0].digits] = Held(path[0].digits, path[0].digest, path[0].deleted)
        return found

    async def has_any(self, tenant: str, digits: Sequence[str]) -> bool:
        """Whether one of some turns of one shard is there, in any state."""
        if not digits or int(digits[0][:2], 16) >= self.keyspace.shards:
            return False
        reader = ShardReader(self._server, self.keyspace.shard(digits[0]), 0)
        return any(await reader.describe([f"{tenant}/{each}" for each in digits]))

    async def noted(self, tenant: str, root: str, digits: str) -> bool:
        """Whether it is noted that the archive lacks a turn of a tree."""
        shard = self.keyspace.shard(root)
        async with self._server.operation() as operation:
            score = await operation.command("ZSCORE", shard.changes_of(tenant, root), HERE + digits)
        return score is not None

    async def note(self, tenant: str, root: str, digits: Sequence[str]) -> int:
        """Have turns of a tree archived again; how many of them are noted now."""
        shard, tree = self.keyspace.shard(root), f"{tenant}/{root}"
        for at in range(0, len(digits), TURNS):
            async with self._server.operation() as operation:
                operation.wrote = True
                await scripts.note_older(operation, shard, tree=tree, members=" ".join(digits[at : at + TURNS]))
        return sum([await self.noted(tenant, root, each) for each in digits])

    async def note_tree(self, tenant: str, root: str) -> int:
        """Have all turns of a tree archived again; how many are noted now."""
        done = 0
        async for some in self.turns(tenant, root):
            done += await self.note(tenant, root, [each.digits for each in some])
        return done
