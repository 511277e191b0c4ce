"""Reading for a backup: the conversations of a shard, each with its turns in order, while others use them.

One script call describes a conversation of an ordinary size, so the description is of one moment. Its payloads are read
afterwards. A turn never changes, and goes only when nothing continues it; but it may have been deleted in between, or
its messages erased. Then its node doesn't fit the payloads, and both are read again. Never guess what is missing. A
conversation that is large, or has jobs under way, is read leaf by leaf, and again until nobody used it meanwhile. A job
under way is not read; the turn that it continues is.

Nothing here writes. Reading doesn't count as use: the order of use stays as it is, and a replica will do. Memory: a
name for each conversation of a shard, a name for each turn of a large one, and the payloads of PIECE_BYTES or one turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from itertools import islice
from time import monotonic
from typing import NamedTuple, TypeVar, cast

import msgspec
import zstandard

from store import codec
from store.backup.records import Erased, Saved
from store.keys import ShardKeys, TurnKeys, id_of
from store.redis import scripts
from store.redis.connection import Argument, Server
from store.turn import TERMINAL, Status

SCANNED = 500
"""How many conversations one ZSCAN looks at."""

TREES = 25
TURNS = 200
"""How many conversations, and how many of their turns, one script call describes: about a millisecond."""

TIPS = 250
"""How many ends of a conversation one call names."""

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


class Unreadable(Exception):
    """A turn that is damaged, or continues one that is; `harmonium fsck` says how."""


class Node(NamedTuple):
    """A turn as lua/describing.lua describes it."""

    digits: str
    parent: str | None
    root: str
    deleted: bool
    erased: Erased | None
    fleeting: bool
    status: str
    digest: str
    created: int
    used: int
    held: int
    messages_bytes: int
    response_bytes: int
    background: str | None
    submission: str | None

    @classmethod
    def of(cls, line: str) -> "Node":
        """The node of a line. Raises Unreadable for one of which something is missing."""
        try:
            return cls._of(line)
        except ValueError as error:
            raise Unreadable(line) from error

    @classmethod
    def _of(cls, line: str) -> "Node":
        digits, parent, root, deleted, erased, fleeting, status, digest, *rest = line.split(" ")
        created, touched, held, messages, response, chain_messages, chain_bytes, background, submission, *above = rest
        if "-" in (root, status, digest):
            raise ValueError(line)
        before = (int(above[0]), int(above[1])) if above else (0, 0)
        added = Erased(max(0, int(chain_messages) - before[0]), max(0, int(chain_bytes) - before[1]))
        return cls(
            digits,
            None if parent == "-" else parent,
            root,
            deleted != "-",
            None if erased == "-" else added,
            fleeting != "-",
            status,
            digest,
            int(created),
            int(touched),
            0 if held == "-" else int(held),
            int(messages),
            int(response),
            None if background == "-" else background,
            None if submission == "-" else submission,
        )

    @property
    def payload(self) -> int:
        """The bytes of its messages and its response."""
        return self.messages_bytes + self.response_bytes

    def fits(self, messages: bytes | None, response: bytes | None) -> bool:
        """Whether these are the payloads of the node."""
        return (
            messages is not None
            and len(messages) == self.messages_bytes
            and len(response or b"") == self.response_bytes
            and (response is None) == self.deleted
        )


async def saved(node: Node, messages: bytes | None, response: bytes | None) -> Saved:
    """The turn of a node. Raises Unreadable, and NewerFormat for what a later release wrote."""
    if not node.fits(messages, response) or messages is None:
        raise Unreadable(node.digits)
    try:
        if (status := Status(node.status)) not in TERMINAL:
            raise Unreadable(node.digits)
        said = codec.decode_messages(messages)
        answer, items = (None, None) if response is None else await codec.unpack_response(response)
    except (ValueError, msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise Unreadable(node.digits) from error
    return Saved(
        id=id_of(node.digits),
        status=status,
        created=node.created,
        used=node.used,
        held=node.held,
        digest=node.digest,
        messages=said,
        parent=None if node.parent is None else id_of(node.parent),
        response=answer,
        items=items,
        erased=node.erased,
        background=node.background,
        submission=node.submission,
    )


def needed(turns: list[Saved]) -> list[Saved]:
    """The turns of a conversation, in order, without those that are deleted and that nothing continues."""
    continued: set[str | None] = set()
    kept: list[Saved] = []
    for turn in reversed(turns):
        if not turn.deleted or turn.id in continued:
            kept.append(turn)
            continued.add(turn.parent)
    return kept[::-1]


class Piece(NamedTuple):
    """Some turns of a conversation in order, after those of an earlier piece of it."""

    member: str
    turns: list[Saved]


def be_patient(server: Server) -> None:
    """Have a server that has answered be waited for through a failover, for work that takes minutes."""
    server.timeout_seconds = max(server.timeout_seconds, PATIENCE_SECONDS)
    server.attempts = PATIENCE_ATTEMPTS


async def scan(
    server: Server, *verb: Argument, match: str = "*", count: int, at: Argument | None = None
) -> AsyncGenerator[list[bytes]]:
    """The pages of a scan: of ZSCAN or its like and a key, or of SCAN on the server that has the key `at`. A page comes
    of about `count` names. Raises StoreUnavailable.
    """
    cursor: bytes | int = 0
    while cursor != b"0":
        cursor, found = await server.command(*verb, cursor, "MATCH", match, "COUNT", count, at=at)
        yield found


async def pause(turns_per_second: float, turns: int, began: float) -> None:
    """Keep a pace: wait until so many turns, since a time of the monotonic clock, are no more than it allows; 0 is no
    pace.
    """
    if turns_per_second:
        await asyncio.sleep(max(0.0, turns / turns_per_second - (monotonic() - began)))


class ShardReader:
    """Reads the conversations of one shard."""

    def __init__(self, server: Server, shard: ShardKeys, turns_per_second: float) -> None:
        """`turns_per_second` is the pace; 0 is as fast as the server answers."""
        self.broken = self.unsettled = 0
        """Turns that could not be read, and conversations that were used each time they were."""
        self._server, self._shard = server, shard
        self._turns_per_second = turns_per_second

    async def all(self, tenant: str | None) -> AsyncGenerator[Piece]:
        """All conversations of the shard or of a tenant, each once. Raises StoreUnavailable."""
        process, last, seen = b"", b"-", set[str]()
        while process != last:  # the cursor of another process means nothing to this one: begin again
            last = process = await self._process()
            async for members in self.names(tenant):
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
            _, *replies = await self._server.run(scripts.survey, self._shard, members=" ".join(now), most=TURNS)
            whole: list[tuple[str, list[Node]]] = []
            for member, reply in zip(now, replies, strict=True):
                about, *lines = reply.decode().split("\n")
                word, *_ = about.split(" ")
                if word == "later":
                    left.append(member)
                elif word == "whole" and _payload(nodes := self._downwards(lines)) <= PIECE_BYTES:
                    whole.append((member, nodes))
                elif word != "gone":
                    slow.append(member)
            for trees in portions(whole, lambda tree: _payload(tree[1]), PIECE_BYTES):
                async for piece in self._read(trees):
                    yield piece
        for member in slow:
            lost = set[str]()
            async for path in self.paths(member):
                async for turns in self._along(member, path, lost):
                    yield Piece(member, turns)

    async def nodes(self, tenant: str, digits: Iterable[str], idle_us: int = GONE_TOO) -> dict[str, Node]:
        """Those of some turns that are there, in any state, by their digits; `idle_us` as for `describe`."""
        found = await self.describe([f"{tenant}/{each}" for each in digits], idle_us=idle_us)
        return {nodes[0].digits: nodes[0] for nodes in found if nodes}

    async def tenants(self) -> list[str]:
        """The tenants that have a conversation in the shard, sorted."""
        found: set[str] = set()
        async for members in self.names():
            found.update(member.partition("/")[0] for member in members)
        return sorted(found)

    async def describe(self, members: Sequence[str], above: int = 0, idle_us: int = GONE_TOO) -> list[list[Node]]:
        """The nodes of each turn TENANT/DIGITS and of those above it, newest first; none where it is gone, or its tree
        was not used for `idle_us`.
        """
        found: list[list[Node]] = []
        for at in range(0, len(members), TURNS):
            some, run = " ".join(members[at : at + TURNS]), self._server.run
            _, *replies = await run(scripts.describe, self._shard, members=some, above=above, idle_us=idle_us)
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

    async def _read(self, trees: list[tuple[str, list[Node]]]) -> AsyncGenerator[Piece]:
        """The payloads of conversations that are known as a whole."""
        began = monotonic()
        named = [(member, node) for member, nodes in trees for node in nodes]
        turns = iter(await self._payloads(named, set()))
        for member, nodes in trees:
            found = needed([turn for turn in islice(turns, len(nodes)) if turn is not None])
            if found:
                yield Piece(member, found)
        await pause(self._turns_per_second, len(named), began)

    async def paths(self, member: str) -> AsyncGenerator[list[Node]]:
        """The turns of a conversation that have ended, a path to each of its ends: each behind those that it continues,
        but for those of an earlier path. It is looked through again if it was used meanwhile, as some may have been
        missed. A turn under way is an end, too, and is left out. Raises StoreUnavailable.
        """
        tenant, _, root = member.partition("/")
        known = set[str]()
        for _ in range(ROUNDS):
            missed, before, cursor = False, "", ""
            while cursor != "0":
                keys, at = TurnKeys(self._shard, tenant, root), cursor or "0"
                word, *told = await self._server.run(scripts.tips, keys, cursor=at, most=TIPS, idle_us=0)
                if word == b"missing":
                    self.broken += await self._used(member) not in ("", "0")
                    return
                _, used, cursor, ends = (each.decode() for each in told)
                before = before or used
                for end in ends.split():
                    path = await self._path(member, end.partition("=")[0], known)
                    missed |= path is None
                    known.update(node.digits for node in path or ())
                    if path:
                        yield path
            after = await self._used(member)
            if after in ("", "0") or (after == before and not missed):
                return
        self.unsettled += 1

    async def _along(self, member: str, path: list[Node], lost: set[str]) -> AsyncGenerator[list[Saved]]:
        """The turns of a path, some at a time. Deleted ones come with what continues them: alone nobody needs them."""
        deleted: list[Saved] = []
        for at in range(0, len(path), TURNS):
            for some in portions(path[at : at + TURNS], lambda node: node.payload, PIECE_BYTES):
                began = monotonic()
                turns = await self._payloads([(member, node) for node in some], lost)
                found = [*deleted, *(turn for turn in turns if turn is not None)]
                end = next((at for at in range(len(found), 0, -1) if not found[at - 1].deleted), 0)
                deleted = found[end:]
                if end:
                    yield found[:end]
                await pause(self._turns_per_second, len(some), began)

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
        while path and (path[0].deleted or path[0].status not in TERMINAL):  # nothing continues it
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
        for some in portions(named, lambda each: each[1].payload, PAYLOAD_BYTES):
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

    async def names(self, tenant: str | None = None) -> AsyncGenerator[list[str]]:
        """All conversations of the shard or of a tenant as TENANT/ROOT, some at a time and some again."""
        match = "*" if tenant is None else f"{tenant}/*"
        async for found in scan(self._server, "ZSCAN", self._shard.trees, match=match, count=SCANNED):
            yield [member.decode() for member in found[::2]]

    async def _used(self, member: str) -> str:
        """The last use of a conversation, as tips.lua has it; "0" or nothing where nobody knows it any more."""
        return (await self._server.command("ZSCORE", self._shard.trees, member) or b"").decode()

    async def _process(self) -> bytes:
        """The process of a server that has the shard."""
        text = await self._server.command("INFO", "server", at=self._shard.clock)
        return next((line for line in text.splitlines() if line.startswith(b"run_id:")), b"")


def _upwards(lines: list[str]) -> list[Node]:
    """The nodes of these lines, each after the one below it, up to one that is damaged."""
    nodes: list[Node] = []
    with suppress(Unreadable):
        for line in lines:
            nodes.append(Node.of(line))  # noqa: PERF401 (those before the damaged one stay)
    return nodes


def _payload(nodes: Iterable[Node]) -> int:
    return sum(node.payload for node in nodes)


def portions(all_of_them: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
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
