"""Reading for a backup: the conversations of a shard, each with its turns in order, while others use them.

One script call describes a conversation of an ordinary size, so the description is of one moment. Its payloads are read
afterwards: that is safe, as a turn never changes, and goes only when nothing continues it. A turn that was deleted in
between is not there, or is a tombstone. A conversation that is large, or has jobs under way, is read leaf by leaf, and
again until nobody used it meanwhile. A job under way is not read; the turn that it continues is.

Nothing here writes. Reading doesn't count as use: the order of use stays as it is, and a replica will do. Memory: a
name for each conversation of a shard, a name for each turn of a large one, and the payloads of PIECE_BYTES or one turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from time import monotonic
from typing import NamedTuple, TypeVar, cast

from store.backup.nodes import Node, Unreadable, needed, saved
from store.backup.records import Saved
from store.keys import ShardKeys
from store.redis import scripts
from store.redis.connection import Client, Server

SCANNED = 500
"""How many conversations one ZSCAN looks at."""

TREES = 25
TURNS = 200
"""How many conversations, and how many of their turns, one script call describes: about a millisecond."""

ABOVE = 99
"""How many turns above another one call describes."""

PAYLOAD_BYTES = 1 << 20
"""After how many bytes of payload a command ends, so that others are served; one turn may have more."""

PIECE_BYTES = 8 << 20
"""How much payload is held at once, as the store has it; a conversation with more is read as a large one."""

GONE_TOO = -1
"""Instead of how long a tree may be unused: what is still there of all trees is described."""

ROUNDS = 5
"""How often a conversation is read that is used meanwhile, and a turn that changes."""

PATIENCE_SECONDS = 30.0
PATIENCE_ATTEMPTS = 200
"""How long a server may take for an answer, and how often it is asked again, after 0.1 s on average: a failover takes
some seconds, and a backup that runs for minutes doesn't give up for that."""

T = TypeVar("T")

PLACES = ("leases", *(f"queued:{level}" for level in range(4)))
"""Where the jobs of a shard are named (store/redis/lua/queueing.lua)."""


class Piece(NamedTuple):
    """Some turns of a conversation in order, after those of an earlier piece of it."""

    member: str
    used: int
    turns: list[Saved]


def patient(redis: Client, timeout_seconds: float) -> Server:
    """The server for work that takes minutes, once it has answered within `timeout_seconds`."""
    return Server(redis, timeout_seconds=max(timeout_seconds, PATIENCE_SECONDS), attempts=PATIENCE_ATTEMPTS)


class ShardReader:
    """Reads the conversations of one shard."""

    def __init__(self, server: Server, shard: ShardKeys, turns_per_second: float) -> None:
        """`turns_per_second` is the pace; 0 is as fast as the server answers."""
        self.broken = self.unsettled = 0
        """Turns that could not be read, and conversations that were used each time they were."""
        self._server, self._shard = server, shard
        self._base = shard.turns.removesuffix("t:")
        self._turns_per_second = turns_per_second

    async def all(self, tenant: str | None, seen: set[str]) -> AsyncGenerator[Piece]:
        """All conversations of the shard or of a tenant, but those `seen`, which grows. Raises StoreUnavailable."""
        process, last = b"", b"-"
        while process != last:  # the cursor of another process means nothing to this one: begin again
            last = process = await self._process()
            async for members in self._names(tenant):
                new = [member for member in dict.fromkeys(members) if member not in seen]
                seen.update(new)
                async for piece in self.some(new):
                    yield piece
            process = await self._process()

    async def some(self, members: Iterable[str]) -> AsyncGenerator[Piece]:
        """These conversations, as far as they are there. Raises StoreUnavailable."""
        left, slow = list(members), list[str]()
        while left:
            now, left = left[:TREES], left[TREES:]
            async with self._server.operation() as operation:
                _, *replies = await scripts.survey(operation, self._shard, members=" ".join(now), most=TURNS)
            whole: list[tuple[str, int, list[Node]]] = []
            for member, reply in zip(now, replies, strict=True):
                about, *lines = reply.decode().split("\n")
                word, used, _ = about.split(" ")
                if word == "later":
                    left.append(member)
                elif word == "whole" and _payload(nodes := self._downwards(lines)) <= PIECE_BYTES:
                    whole.append((member, int(float(used)), nodes))
                elif word != "gone":
                    slow.append(member)
            for trees in _portions(whole, lambda tree: _payload(tree[2]), PIECE_BYTES):
                async for piece in self._read(trees):
                    yield piece
        for at in range(0, len(slow), TURNS):
            async for piece in self._slowly(slow[at : at + TURNS]):
                yield piece

    async def tenants(self) -> list[str]:
        """The tenants that have a conversation in the shard, sorted."""
        found: set[str] = set()
        async for members in self._names(None):
            found.update(member.partition("/")[0] for member in members)
        return sorted(found)

    async def describe(self, members: Sequence[str], above: int = 0, idle_us: int = GONE_TOO) -> list[list[Node]]:
        """The nodes of each turn TENANT/DIGITS and of those above it, newest first; none where it is gone, or its tree
        was not used for `idle_us`.
        """
        found: list[list[Node]] = []
        for at in range(0, len(members), TURNS):
            async with self._server.operation() as operation:
                some = " ".join(members[at : at + TURNS])
                _, *replies = await scripts.describe(operation, self._shard, members=some, above=above, idle_us=idle_us)
            found += [_upwards(reply.decode().split("\n")) if reply else [] for reply in replies]
        return found

    async def turn(self, tenant: str, node: Node) -> Saved | None:
        """The turn of a node; None where it is gone by now or can't be read."""
        (turn,) = await self._payloads([(f"{tenant}/{node.root}", node)], set())
        return turn

    async def turns(self, tenant: str, nodes: Sequence[Node]) -> AsyncGenerator[tuple[Node, Saved | None]]:
        """The turns of some nodes, one after the other; None for one that is gone by now or can't be read. No more than
        PAYLOAD_BYTES, or one turn, is read before it is asked for.
        """
        async with aclosing(self._each([(f"{tenant}/{node.root}", node) for node in nodes], set())) as turns:
            left = iter(nodes)
            async for turn in turns:
                yield next(left), turn

    async def _read(self, trees: list[tuple[str, int, list[Node]]]) -> AsyncGenerator[Piece]:
        """The payloads of conversations that are known as a whole."""
        began = monotonic()
        named = [(member, node) for member, _, nodes in trees for node in nodes]
        turns = iter(await self._payloads(named, set()))
        for member, used, nodes in trees:
            found = needed([turn for turn in islice(turns, len(nodes)) if turn is not None])
            if found:
                yield Piece(member, used, found)
        await self._pause(len(named), began)

    async def _slowly(self, members: list[str]) -> AsyncGenerator[Piece]:
        """Read conversations that are large or have jobs. A turn that a job continues is no leaf: the jobs name it."""
        uses = {member: await self._used(member) for member in members}
        jobs = await self._jobs()
        for member in members:
            async for piece in self._until_settled(member, uses[member], jobs.get(member, [])):
                yield piece

    async def _until_settled(self, member: str, used: int, continued: list[str]) -> AsyncGenerator[Piece]:
        """A conversation, leaf by leaf; again if it was used since it was `used`, as turns may have been missed."""
        known, lost = set[str](), set[str]()
        for _ in range(ROUNDS):
            missed = False
            async for leaf in self._leaves(member, continued):
                path = await self._path(member, leaf, known) if used else []
                missed |= path is None
                known.update(node.digits for node in path or ())
                async for turns in self._along(member, path or [], lost):
                    yield Piece(member, used, turns)
            after = await self._used(member)
            if not after or (after == used and not missed):
                return
            used, continued = after, (await self._jobs()).get(member, [])
        self.unsettled += 1

    async def _along(self, member: str, path: list[Node], lost: set[str]) -> AsyncGenerator[list[Saved]]:
        for at in range(0, len(path), TURNS):
            for some in _portions(path[at : at + TURNS], lambda node: node.payload, PIECE_BYTES):
                began = monotonic()
                turns = await self._payloads([(member, node) for node in some], lost)
                if found := [turn for turn in turns if turn is not None]:
                    yield found
                await self._pause(len(some), began)

    async def _path(self, member: str, leaf: str, known: set[str]) -> list[Node] | None:
        """The turns below a known one, or from the root, down to a leaf; None where that has gone meanwhile."""
        tenant, _, _ = member.partition("/")
        path: list[Node] = []
        digits: str | None = leaf
        while digits is not None and digits not in known:
            (nodes,) = await self.describe([f"{tenant}/{digits}"], ABOVE)
            if not nodes:
                return None if digits == leaf else await self._hole(f"{tenant}/{leaf}")
            for node in nodes:
                digits = node.parent
                path.append(node)
                if digits in known:
                    break
        while path and path[0].deleted:  # nothing continues it
            del path[0]
        return path[::-1]

    async def _hole(self, leaf: str) -> list[Node] | None:
        """Count a turn that can't be read, as one above a leaf is missing, if the leaf is still there."""
        (nodes,) = await self.describe([leaf])
        if not nodes:
            return None
        self.broken += 1
        return []

    async def _payloads(self, named: list[tuple[str, Node]], lost: set[str]) -> list[Saved | None]:
        """The turns of some nodes; None for one that is gone or can't be read, and so for those that continue it.

        `lost` has TENANT/ROOT/DIGITS of such turns, and grows.
        """
        return [turn async for turn in self._each(named, lost)]

    async def _each(self, named: list[tuple[str, Node]], lost: set[str]) -> AsyncGenerator[Saved | None]:
        """The same, one after the other."""
        for some in _portions(named, lambda each: each[1].payload, PAYLOAD_BYTES):
            blobs = await self._blobs(some)
            for (member, node), (messages, response) in zip(some, blobs, strict=True):
                turn = None
                if f"{member}/{node.parent}" not in lost and not node.fleeting:
                    turn = await self._turn(member, node, messages, response)
                if turn is None:
                    lost.add(f"{member}/{node.digits}")
                yield turn

    async def _turn(self, member: str, node: Node, messages: bytes | None, response: bytes | None) -> Saved | None:
        """A turn; None where it is gone, or can't be read. It is looked at again where it has changed since."""
        try:
            for _ in range(ROUNDS):
                if node.fits(messages, response):
                    break
                (nodes,) = await self.describe([f"{member.partition('/')[0]}/{node.digits}"])
                if not nodes:
                    return None
                node = nodes[0]
                ((messages, response),) = await self._blobs([(member, node)])
            return await saved(node, messages, response)
        except Unreadable:
            self.broken += 1
            return None

    async def _blobs(self, some: list[tuple[str, Node]]) -> list[tuple[bytes | None, bytes | None]]:
        """Messages and response of each."""
        read: list[list[bytes | None]] = []
        async with self._server.operation() as operation:
            for family in ("messages", "response"):
                names = [f"{member.partition('/')[0]}:{family}:{node.digits}" for member, node in some]
                keys = [self._shard.turns + name for name in names]
                read.append(cast(list[bytes | None], await operation.command("MGET", *keys)))
        return list(zip(*read, strict=True))

    def _downwards(self, lines: list[str]) -> list[Node]:
        """The nodes of these lines, each after the one above it, but for those that are damaged or continue one."""
        nodes: list[Node] = []
        lost: set[str | None] = set()
        for line in lines:
            try:
                node = Node.of(line)
                if node.parent in lost:
                    raise Unreadable(line)
                nodes.append(node)
            except Unreadable:
                lost.add(line.partition(" ")[0])
                self.broken += 1
        return nodes

    async def _names(self, tenant: str | None) -> AsyncGenerator[list[str]]:
        cursor: bytes | int = 0
        while cursor != b"0":
            async with self._server.operation() as operation:
                match = "*" if tenant is None else f"{tenant}/*"
                args = ("ZSCAN", self._shard.trees, cursor, "MATCH", match, "COUNT", SCANNED)
                cursor, found = await operation.command(*args)
            yield [member.decode() for member in found[::2]]

    async def _leaves(self, member: str, continued: list[str]) -> AsyncGenerator[str]:
        tenant, _, root = member.partition("/")
        cursor: bytes | int = 0
        while cursor != b"0":
            async with self._server.operation() as operation:
                key = f"{self._shard.turns}{tenant}:tree:{root}"
                cursor, found = await operation.command("SSCAN", key, cursor, "COUNT", SCANNED)
            for leaf in found:
                yield leaf.decode()
        for digits in continued:
            yield digits

    async def _jobs(self) -> dict[str, list[str]]:
        """The turns that jobs of the shard continue, by TENANT/ROOT of the conversation."""
        found: dict[str, list[str]] = {}
        for place in PLACES:
            async with self._server.operation() as operation:
                members = [each.decode() for each in await operation.command("ZRANGE", self._base + place, 0, -1)]
            for member, nodes in zip(members, await self.describe(members), strict=True):
                if nodes and nodes[0].parent:
                    tree = f"{member.partition('/')[0]}/{nodes[0].root}"
                    found.setdefault(tree, []).append(nodes[0].parent)
        return found

    async def _used(self, member: str) -> int:
        """The last use of a conversation; 0 where nobody knows it any more."""
        async with self._server.operation() as operation:
            return int(float(await operation.command("ZSCORE", self._shard.trees, member) or 0))

    async def _process(self) -> bytes:
        """The process of a server that has the shard."""
        async with self._server.operation() as operation:
            text = await operation.command("INFO", "server", at=self._shard.clock)
        return next((line for line in text.splitlines() if line.startswith(b"run_id:")), b"")

    async def _pause(self, turns: int, began: float) -> None:
        if self._turns_per_second:
            await asyncio.sleep(max(0.0, turns / self._turns_per_second - (monotonic() - began)))


def _upwards(lines: list[str]) -> list[Node]:
    """The nodes of these lines, each after the one below it, up to one that is damaged."""
    nodes: list[Node] = []
    with suppress(Unreadable):
        for line in lines:
            nodes.append(Node.of(line))  # noqa: PERF401 (those before the damaged one stay)
    return nodes


def _payload(nodes: Iterable[Node]) -> int:
    return sum(node.payload for node in nodes)


def _portions(all_of_them: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """These in order, each list with `most` bytes at most, or one of them."""
    some: list[T] = []
    total = 0
    for each in all_of_them:
        if some and total + size(each) > most:
            yield some
            some, total = [], 0
        some.append(each)
        total += size(each)
    if some:
        yield some
