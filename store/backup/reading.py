"""Reading for a backup: the conversations of a shard, each with its turns in order, while others use them.

A conversation is read end by end, and again until nobody used it meanwhile. Payloads are read after the turns were
described. A turn never changes, and goes only when nothing continues it; but it may have been deleted in between, or
its messages erased. Then its node doesn't fit the payloads, and both are read again. Never guess what is missing. A
job under way is not read; the turn that it continues is.

Nothing here writes. Reading doesn't count as use: the order of use stays as it is, and a replica will do. Memory: a
name for each conversation of a shard, a name for each turn of one, and the payloads of PAYLOAD_BYTES or one turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from itertools import islice, takewhile
from time import monotonic
from typing import NamedTuple, TypeVar, cast

import msgspec
import zstandard

from store import codec
from store.backup.records import ErasedMessages, Saved, are_json
from store.keys import ShardKeys, TurnKeys, id_of, is_conversation
from store.redis import scripts
from store.redis.connection import Argument, Server
from store.turn import TERMINAL, Picture, Status

SCANNED = 500
"""How many conversations one ZSCAN looks at."""

TURNS = 200
"""How many turns one script call describes: about a millisecond."""

TIPS = 250
"""How many ends of a conversation one call names."""

ABOVE = 99
"""How many turns above another one call describes."""

PAYLOAD_BYTES = 1 << 20
"""After how many bytes of payload a command ends, so that others are served; one turn may have more."""

GONE_TOO = -1
"""Instead of how long a tree may be unused: what is still there of all trees is described."""

ROUNDS = 5
"""How often a conversation is read that is used meanwhile, and a turn that changes."""

PATIENCE_SECONDS = 30.0
PATIENCE_ATTEMPTS = 200
"""How long a server may take for an answer, and how often it is asked again, after 0.1 s on average: a failover takes
some seconds, and a backup that runs for minutes doesn't give up for that."""

T = TypeVar("T")


BROKEN = ""
"""The status of a turn of which something is missing."""


class Unreadable(Exception):
    """A turn that is damaged, or continues one that is; `harmonium fsck` says how."""


class Payload(NamedTuple):
    """The payloads of a turn as they were read: its messages, its response, and the bytes of its pictures."""

    messages: bytes | None
    response: bytes | None
    pictures: Sequence[bytes | None]


class Node(NamedTuple):
    """A turn as lua/describe.lua describes it."""

    digits: str
    parent: str | None
    root: str
    deleted: bool
    erased: ErasedMessages | None
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
    said: bytes = b""
    pictures: Sequence[tuple[str, int]] = ()
    """The pictures that it shows and that are there: the digest of each in hex, and its length."""

    @classmethod
    def of(cls, line: str) -> "Node":
        """The node of a line; a BROKEN one where something of it is missing."""
        digits, parent, root, deleted, erased, fleeting, status, digest, *rest = line.split(" ")
        created, used, held, messages, response, chain_messages, chain_bytes, background, submission, *rest = rest
        shown, said, *above = rest
        numbers, before = [0] * 7, [0, 0]
        try:
            sizes = "0" if held == "-" else held, messages, response, chain_messages, chain_bytes
            numbers, before = [int(each) for each in (created, used, *sizes)], [int(each) for each in above] or before
        except ValueError:
            status = BROKEN
        added = ErasedMessages(max(0, numbers[5] - before[0]), max(0, numbers[6] - before[1]))
        return cls(
            digits,
            None if parent == "-" else parent,
            root,
            deleted != "-",
            None if erased == "-" else added,
            fleeting != "-",
            BROKEN if "-" in (root, status, digest) else status,
            digest,
            *numbers[:5],
            background=None if background == "-" else background,
            submission=None if submission == "-" else submission,
            said=b"" if said == "-" else bytes.fromhex(said),
            pictures=() if shown == "-" else _sizes(shown),
        )

    @property
    def payload(self) -> int:
        """The bytes of its messages, its response and its pictures."""
        return self.messages_bytes + self.response_bytes + sum(length for _, length in self.pictures)

    def fits(self, found: Payload) -> bool:
        """Whether these are the payloads of the node."""
        return (
            found.messages is not None
            and len(found.messages) == self.messages_bytes
            and len(found.response or b"") == self.response_bytes
            and (found.response is None) == self.deleted
            and [len(data or b"") for data in found.pictures] == [length for _, length in self.pictures]
        )


def _sizes(shown: str) -> Sequence[tuple[str, int]]:
    pairs = (each.partition(":") for each in shown.split(","))
    return [(digest, int(length)) for digest, _, length in pairs]


async def read_turn(node: Node, found: Payload) -> Saved:
    """The turn of a node. Raises Unreadable, and NewerFormat for what a later release wrote."""
    messages, response, pictures = found
    if not node.fits(found) or messages is None:
        raise Unreadable(node.digits)
    try:
        if (status := Status(node.status)) not in TERMINAL:
            raise Unreadable(node.digits)
        said = codec.decode_messages(messages)
        large = len(response or b"") > codec.THREAD_FROM_BYTES
        answer, items = await asyncio.to_thread(_unpack, response) if large else _unpack(response)
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
        said=node.said,
        pictures=tuple(
            Picture(bytes.fromhex(digest), data or b"")
            for (digest, _), data in zip(node.pictures, pictures, strict=True)
        ),
    )


def _unpack(response: bytes | None) -> tuple[bytes | None, bytes | None]:
    """The response and the input items of a blob. Raises ValueError, and NewerFormat."""
    return (None, None) if response is None else codec.decode_response(response)


async def _is_whole(turn: Saved) -> bool:
    said, items = turn.response or b"{}", turn.items or b"[]"
    large = len(said) + len(items) > codec.THREAD_FROM_BYTES
    return await asyncio.to_thread(are_json, said, items) if large else are_json(said, items)


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

    def __init__(self, server: Server, shard: ShardKeys, *, whole: bool = False) -> None:
        """With `whole` a turn without JSON, which nobody could be served, is one that can't be read."""
        self.broken = self.unsettled = 0
        """Turns that could not be read, and conversations that were used each time they were."""
        self._server, self._shard, self._whole = server, shard, whole

    async def members(self, tenant: str | None = None) -> AsyncGenerator[str]:
        """All conversations of the shard or of a tenant as TENANT/ROOT, each once. Raises StoreUnavailable."""
        process, last, seen = b"", b"-", set[str]()
        while process != last:  # the cursor of another process means nothing to this one: begin again
            last = process = await self._process()
            match = "*" if tenant is None else f"{tenant}/*"
            async for found in scan(self._server, "ZSCAN", self._shard.trees, match=match, count=SCANNED):
                for member in dict.fromkeys(each.decode() for each in found[::2]):
                    if member not in seen:
                        seen.add(member)
                        yield member
            process = await self._process()

    async def nodes(
        self, tenant: str, digits: Iterable[str], idle_us: int = GONE_TOO, *, broken: bool = False
    ) -> dict[str, Node]:
        """Those of some turns that are there, in any state, by their digits; the rest is as for `describe`."""
        found = await self.describe([f"{tenant}/{each}" for each in digits], idle_us=idle_us, broken=broken)
        return {nodes[0].digits: nodes[0] for nodes in found if nodes}

    async def describe(
        self, members: Sequence[str], above: int = 0, idle_us: int = GONE_TOO, *, broken: bool = False
    ) -> list[list[Node]]:
        """The nodes of each turn TENANT/DIGITS and of those above it, newest first, up to one that is `broken`, or with
        that; none where it is gone, or its tree was not used for `idle_us`.
        """
        found: list[list[Node]] = []
        for at in range(0, len(members), TURNS):
            some, run = " ".join(members[at : at + TURNS]), self._server.run
            _, *replies = await run(scripts.describe, self._shard, members=some, above=above, idle_us=idle_us)
            found += [[Node.of(line) for line in reply.decode().split("\n")] if reply else [] for reply in replies]
        return found if broken else [list(takewhile(lambda node: node.status != BROKEN, nodes)) for nodes in found]

    async def turn(self, tenant: str, node: Node) -> Saved | None:
        """The turn of a node; None where it is gone by now or can't be read."""
        ((_, turn),) = [each async for each in self.turns(tenant, [node])]
        return turn

    async def turns(
        self, tenant: str, nodes: Sequence[Node], lost: set[str] | None = None
    ) -> AsyncGenerator[tuple[Node, Saved | None]]:
        """The turns of some nodes, one after the other; None for one that is gone by now or can't be read, and so for
        those that continue it. No more than PAYLOAD_BYTES, or one turn, is read before it is asked for. `lost` has the
        digits of such turns of the same tree, and grows.
        """
        lost = set() if lost is None else lost
        for some in portions(nodes, lambda node: node.payload, PAYLOAD_BYTES):
            blobs = await self._blobs(tenant, some)
            for node, found in zip(some, blobs, strict=True):
                turn = None
                if node.parent not in lost and not node.fleeting and node.status != BROKEN:
                    turn = await self._turn(tenant, node, found)
                if turn is None:
                    lost.add(node.digits)
                yield node, turn

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
                    is_known = await self._last_use(member) not in ("", "0")
                    self.broken += is_known
                    return
                _, used, cursor, ends = (each.decode() for each in told)
                before = before or used
                for end in ends.split():
                    path = await self._path(member, end.partition("=")[0], known)
                    missed |= path is None
                    known.update(node.digits for node in path or () if not is_conversation(id_of(node.digits)))
                    if path:
                        yield path
            after = await self._last_use(member)
            if after in ("", "0") or (after == before and not missed):
                return
        self.unsettled += 1

    async def _path(self, member: str, leaf: str, known: set[str]) -> list[Node] | None:
        """The turns below a known one, or from the root, down to a leaf; None where that has gone meanwhile."""
        tenant, _, _ = member.partition("/")
        path: list[Node] = []
        digits: str | None = leaf
        while digits is not None and digits not in known:
            (nodes,) = await self.describe([f"{tenant}/{digits}"], ABOVE, broken=True)
            if not nodes:
                return None if digits == leaf else await self._hole(f"{tenant}/{leaf}")
            for node in nodes:
                digits = node.parent
                path.append(node)
                if digits in known:
                    break
        self.broken += sum(node.status == BROKEN for node in path)
        while path and (path[0].deleted or path[0].status not in (*TERMINAL, BROKEN)):  # nothing continues it
            del path[0]
        return path[::-1]

    async def _hole(self, leaf: str) -> list[Node] | None:
        """Count a turn that can't be read, as one above a leaf is missing, if the leaf is still there."""
        (nodes,) = await self.describe([leaf], 0, broken=True)
        if not nodes:
            return None
        self.broken += 1
        return []

    async def _turn(self, tenant: str, node: Node, found: Payload) -> Saved | None:
        """A turn; None where it is gone, or can't be read. It is looked at again where it has changed since."""
        try:
            for _ in range(ROUNDS):
                if node.fits(found):
                    break
                (nodes,) = await self.describe([f"{tenant}/{node.digits}"])
                if not nodes:
                    return None
                node = nodes[0]
                (found,) = await self._blobs(tenant, [node])
            turn = await read_turn(node, found)
            if self._whole and not await _is_whole(turn):
                raise Unreadable(node.digits)
            return turn
        except Unreadable:
            self.broken += 1
            return None

    async def _blobs(self, tenant: str, some: Sequence[Node]) -> list[Payload]:
        """The payloads of each."""
        family = f"{self._shard.turns}{tenant}:"
        texts = [("MGET", *(f"{family}{name}:{node.digits}" for node in some)) for name in ("messages", "response")]
        shown = [("HGET", f"{family}picture:{digest}", "bytes") for node in some for digest, _ in node.pictures]
        messages, responses, *read = await self._server.row(*texts, *shown, at=self._shard.trees, ahead=True)
        pictures = iter(cast(list[bytes | None], read))
        return [
            Payload(said, response, list(islice(pictures, len(node.pictures))))
            for node, said, response in zip(some, messages, responses, strict=True)
        ]

    async def _last_use(self, member: str) -> str:
        """The last use of a conversation, as tips.lua has it; "0" or nothing where nobody knows it any more."""
        return (await self._server.command("ZSCORE", self._shard.trees, member) or b"").decode()

    async def _process(self) -> bytes:
        """The process of a server that has the shard."""
        text = await self._server.command("INFO", "server", at=self._shard.clock)
        return next((line for line in text.splitlines() if line.startswith(b"run_id:")), b"")


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
