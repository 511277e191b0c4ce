"""One inspection of all turns of a shard: the faults of each, and their sums.

SCAN finds the keys. A read-only script judges some turns a call (lua/judging.lua), each by what is true at that moment,
however busy the store is. Each question is an operation of its own, so it is answered in time or is StoreUnavailable.
Sums are not of one moment: they hold if the shard is the same before and after. A turn costs a dict entry, some 150
bytes; never keep more of each. Nothing here writes.
"""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from store import codec
from store.backup.reading import scan
from store.jobs.model import LEVELS, WINDOWS
from store.keys import COUNTERS, Keyspace
from store.redis import scripts
from store.redis.connection import Server
from store.turn import PICTURE_DIGEST_BYTES

T = TypeVar("T")

SCAN_KEYS = 500
"""How many keys one SCAN looks at."""

WORDS_NAME = 8
"""The bytes of a digest that name it in the index of words, as lua/said.lua has them."""

TURNS = 25
"""How many turns one script call judges, which takes about a millisecond."""

KINDS = {
    **dict.fromkeys(("clock", "logged", "looked", "secret"), "string"),
    **dict.fromkeys(("archive-id", "archive-user", "older", "files-held", "files-recovered"), "string"),
    **dict.fromkeys(
        ("tombstones", "trees", "leases", "logs", "outbox", "outbox-ages", "reservations", "unarchived", "files-until"),
        "zset",
    ),
    **dict.fromkeys((f"usage:{field}" for field in COUNTERS), "zset"),
    **dict.fromkeys((f"{name}:{level}" for name in ("queued", "turn") for level in range(LEVELS)), "zset"),
    **dict.fromkeys((f"accepted:{level}" for level in WINDOWS), "zset"),
    **dict.fromkeys(("usage", "sweeps", "waiting-bytes", "outbox-tries", "store"), "hash"),
    **dict.fromkeys(("registry", "registry-used", "archive-failed", "archive-head"), "hash"),
    **dict.fromkeys(("audit-entries", "audit-shares"), "zset"),
}
"""The keys that all trees of a shard share, by name, with their types of value."""

PLACES = (
    "leases",
    "logs",
    *(f"queued:{level}" for level in range(LEVELS)),
    *(f"accepted:{level}" for level in WINDOWS),
)
"""Those that name jobs and logs, as lua/judging.lua knows them."""

_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
"""A number that Redis can count with."""


def is_number(value: bytes) -> bool:
    """Whether Redis can count with it."""
    return _NUMBER.fullmatch(value) is not None


class Moment(NamedTuple):
    """A shard at one moment.

    A worker that adds to the log of its job extends the lease, and all else that adds to a log changes `sums`. So if
    two moments are the same, nothing was added between them; else as much might have come as went.
    """

    process: bytes
    """The process of the server: a cursor of one means nothing to another."""
    sums: str
    """The clock and the counters, one of which changes with all that is appended, deleted or taken away."""
    logged: bytes
    """The bytes of all event logs as they are noted."""
    leases: tuple[bytes, ...]

    @property
    def turns(self) -> int:
        """How many turns there are, by the counters."""
        return sum(int(number) for number in self.sums.split(" ")[1:3] if number.isdigit())


class Shard:
    """The keys of one shard on their server."""

    def __init__(self, server: Server, keyspace: Keyspace, number: int, turns_per_second: float) -> None:
        """`turns_per_second` is the pace of judging; 0 is as fast as the server answers."""
        self.number = number
        self.server = server
        self.keys = keyspace.all_shards()[number]
        self.base = self.keys.turns.removesuffix("t:")
        self._turns_per_second = turns_per_second

    def key(self, family: str, member: str) -> str:
        """The key of a family, such as `node`, of the turn or the picture TENANT/DIGITS."""
        tenant, _, digits = member.partition("/")
        return f"{self.keys.turns}{tenant}:{family}:{digits}"

    async def moment(self) -> Moment:
        """The present moment.

        If the clock moves on while the counters are read, both its times stand there, as no later moment has them. Else
        something might go, and as much come between the two questions, and all would look as before.
        """
        async with self.server.operation() as operation:
            text = await operation.command("INFO", "server", at=self.keys.clock)
            clock = await operation.command("GET", self.keys.clock)
            counted = await operation.command("HMGET", self.keys.usage, *COUNTERS)
            later = await operation.command("GET", self.keys.clock)
            leases = await operation.command("ZRANGE", self.keys.leases, 0, -1, "WITHSCORES")
            logged = await operation.command("GET", self.keys.logged)
        if later != clock:
            clock = b"%b~%b" % (clock or b"", later or b"")
        sums = b" ".join(b"-" if value is None else value for value in (clock, *counted)).decode("utf-8", "replace")
        process = next((line for line in text.splitlines() if line.startswith(b"run_id:")), b"")
        return Moment(process, sums, logged or b"0", tuple(leases))

    async def type_of(self, name: str) -> str:
        """The type of the value of a key of the shard."""
        return (await self.server.command("TYPE", self.base + name)).decode()

    async def counters(self) -> dict[str, int | None]:
        """The counters of the shard, and FIELD/TENANT of tenants; None is one that isn't a number."""
        counted = await self.server.command("HMGET", self.keys.usage, *COUNTERS)
        found: dict[str, bytes | None] = dict(zip(COUNTERS, counted, strict=True))
        for counter in COUNTERS:
            async for some in scan(self.server, "ZSCAN", f"{self.keys.usage}:{counter}", count=SCAN_KEYS):
                tenants = (each.decode("utf-8", "replace") for each in some[::2])
                found |= {f"{counter}/{tenant}": value for tenant, value in zip(tenants, some[1::2], strict=True)}
        there = {name: value for name, value in found.items() if value is not None}
        return {name: int(value) if is_number(value) else None for name, value in there.items()}

    async def judge(self, members: Iterable[str]) -> AsyncGenerator[list["Judged"]]:
        """Yields some turns as lua/inspect_turns.lua judges them, call by call."""
        for some in batches(members):
            _, *rows = await self.server.run(
                scripts.inspect_turns, self.keys, members=" ".join(some), version=codec.FORMAT
            )
            yield [Judged.of(row.decode()) for row in rows]
            if self._turns_per_second:
                await asyncio.sleep(len(some) / self._turns_per_second)


def batches(members: Iterable[T], size: int = TURNS) -> Iterator[list[T]]:
    """Lists of at most `size` of them, in order."""
    left = iter(members)
    while some := list(islice(left, size)):
        yield some


MAX_REMEMBERED = 10_000
"""How many turns of a kind are remembered for a repair or a recount; the next inspection finds the others."""

_FAMILIES = rb"node|messages|response|pins|runs|tree|job|spec|log|snapshot|remains"
_TURN = re.compile(rb"t:([A-Za-z0-9_.-]+):(?:%b):([0-9a-f]{48})" % _FAMILIES)
_PICTURE = re.compile(rb"t:([A-Za-z0-9_.-]+):picture:([0-9a-f]{%d})" % (2 * PICTURE_DIGEST_BYTES))
_OWN = re.compile(rb"(line:[0-5]|leaves|conversations|trees|said):([A-Za-z0-9_.-]{1,64})")
"""A tenant's own keys: a line of jobs at a level, the order of its leaves, its conversations, its trees, what its turns
have said."""

_LIMIT = rb"(?:limits|parallel):[A-Za-z0-9_.-]{1,64}/[A-Za-z0-9_-]+"
_REGISTRY = rb"registry:[a-z-]+(?:/[A-Za-z0-9_.-]{1,64})?|audit-of:@?[A-Za-z0-9_.-]{1,64}"
"""The counts of a limit, a list of the registry, and a share of the audit log: they have nothing to do with turns."""

_NOTE = re.compile(
    rb"(?:claim|outbox-take|spent-by):[0-9a-f]+|spent:[0-9]{1,9}|"
    rb"(?:approvals|approved|containers|groups|keyed|keyed-until|reserved):[A-Za-z0-9_.-]{1,64}|"
    rb"archive-away|archiver|short|fence:[A-Za-z0-9_.-]{1,64}/[*x-][0-9a-f]{48}|%b" % _LIMIT
)
_CHANGED = re.compile(rb"changes:[A-Za-z0-9_.-]{1,64}/[0-9a-f]{48}")
"""The changes of one tree that the archive lacks."""

_FILES = rb"(?:files|file-room):[A-Za-z0-9_.-]{1,64}|pieces:[A-Za-z0-9_.-]{1,64}/file-[A-Za-z0-9_-]{24}"
_BATCHES = rb"batching|(?:batches|batching):[A-Za-z0-9_.-]{1,64}"

_OTHER = re.compile(rb"%b|%b|%b|%b|%b" % (_NOTE.pattern, _REGISTRY, _CHANGED.pattern, _FILES, _BATCHES))

_MEMBER = re.compile(rb"[A-Za-z0-9_.-]{1,64}/[0-9a-f]{48}")
_DIGITS = re.compile(rb"[0-9a-f]{48}")


class Judged(NamedTuple):
    """A member as in lua/judging.lua, what it adds to the sums, and a word for each of its faults, or 'unneeded'."""

    member: str
    parent: str
    children: int
    kind: str
    bytes: int
    newer: bool
    mixed: bool
    jobs: int
    tree: str
    events: int
    pictures: str
    said: str
    words: list[str]

    @classmethod
    def of(cls, row: str) -> "Judged":
        """The member in a row of lua/inspect_turns.lua."""
        *fields, words = [*row.split(" ", 12), ""][:13]
        return msgspec.convert([*fields, words.split()], cls, strict=False)


class Inspection:
    """An inspection of a shard; `remembers_children` is for a repair."""

    def __init__(self, shard: Shard, remembers_children: bool) -> None:
        self.turns = self.newer = self.unknown = self.unneeded = 0
        self.counted: Counter[str] = Counter()
        self.events = 0
        """The bytes of all event logs."""
        self.misnamed: dict[str, list[bytes]] = {}
        self.mistyped: list[str] = []
        """The names of tenants' own keys that hold another type of value."""
        self.endless: list[str] = []
        """Notes of calls for their retries that never expire."""
        self.empty_pictures: set[str] = set()
        self._shard = shard
        self._remembers_children = remembers_children
        self.children: defaultdict[str, list[str]] = defaultdict(list)
        self._balance: defaultdict[str, dict[bytes, int]] = defaultdict(dict)
        self._awaited: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        self._leftovers: set[str] = set()
        self._mixed: list[str] = []
        self._own: defaultdict[str, set[str]] = defaultdict(set)
        self._noted: dict[str, dict[str, int]] = {"jobs": {}, "picture": {}, "words": {}}
        """How many jobs a root says that its tree has; how many turns a picture says that show it, TENANT/HEX; and how
        many the index says that have the same words, TENANT/FIELD. Each by the word for a fault, -1 for no number."""
        self._real: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The real numbers of these."""

    async def run(self) -> AsyncGenerator[list[Judged]]:
        """Judge every turn of the shard once, and every place that names one; the faulty ones of each batch."""
        async for members in self._named_members():
            async for rows in self._shard.judge(member for member in members if not self._is_judged(member)):
                for row in rows:
                    self._note(row)
                yield [row for row in rows if row.words]

    async def _named_members(self) -> AsyncGenerator[Iterable[str]]:
        """Yields members as in lua/judging.lua: of turns, and then of places that name them."""
        server, base = self._shard.server, self._shard.base
        async for keys in scan(server, "SCAN", match=f"{base}*", count=SCAN_KEYS, at=self._shard.keys.clock):
            names = [key.removeprefix(base.encode()) for key in keys]
            yield self._members(names)
            for note in [name.decode() for name in names if _NOTE.fullmatch(name)]:
                if await server.command("PTTL", base + note) == -1:
                    self.endless.append(note)
            yield [f"{name.decode().removeprefix('changes:')}/changes" for name in names if _CHANGED.fullmatch(name)]
        own, places = self._own, [(name, _MEMBER, "", "") for name in ("tombstones", "trees")]
        of_tenants = own["leaves"] | own["conversations"] | own["trees"]
        places += [(name, _DIGITS, f"{name.partition(':')[2]}/", "") for name in of_tenants]
        places += [(name, _MEMBER, "", f"/{name}") for name in PLACES]
        for line in own["line"]:
            level, _, tenant = line.rpartition(":")
            places.append((line, _DIGITS, f"{tenant}/", f"/{level}"))
        for name, pattern, before, behind in places:
            async for some in self._values_of("zset", name):
                found = self._turn_names(base + name, some[::2], pattern)
                yield [f"{before}{each}{behind}" for each in found]
        for index in self._own["said"]:
            async for some in self._said_in(index):
                yield some
        for root in self._mixed:
            tenant, _, digits = root.partition("/")
            async for some in scan(server, "SSCAN", self._shard.key("tree", root), count=SCAN_KEYS):
                yield [f"{tenant}/{leaf}/{digits}" for leaf in self._turn_names(root, some, _DIGITS)]

    def suspects(self) -> Iterator[tuple[str, int]]:
        """The turns that don't have as many children as they count, and how many more they count than were found."""
        wrong = (
            (f"{tenant}/{digits.hex()}", balance)
            for tenant, balances in self._balance.items()
            for digits, balance in balances.items()
            if balance
        )
        return islice(wrong, MAX_REMEMBERED)

    def _members(self, names: Iterable[bytes]) -> set[str]:
        """The turns that these keys belong to; unknown keys are counted."""
        found: set[str] = set()
        for name in names:
            if match := _TURN.fullmatch(name) or _PICTURE.fullmatch(name):
                found.add(f"{match[1].decode()}/{match[2].decode()}")
            elif match := _OWN.fullmatch(name):
                self._own[match[1].decode().partition(":")[0]].add(name.decode())
            elif name.decode("utf-8", "replace") not in KINDS and not _OTHER.fullmatch(name):
                self.unknown += 1
        return found

    async def _said_in(self, name: str) -> AsyncGenerator[list[str]]:
        """Yields the places of an index of words, with the digits that they name, call by call."""
        tenant = name.partition(":")[2]
        async for some in self._values_of("hash", name):
            fields = list(zip(some[::2], some[1::2], strict=True))
            counts = ((field, entry[1:]) for field, entry in fields if len(field) == WORDS_NAME and entry[:1] == b"#")
            for field, number in counts:
                self._noted["words"][f"{tenant}/{field.hex()}"] = int(number) if is_number(number) else -1
            names = (entry.decode() if _DIGITS.fullmatch(entry) else "0" for _, entry in fields)
            yield [f"{tenant}/{digits}/said:{field.hex()}" for digits, (field, _) in zip(names, fields, strict=True)]

    async def _values_of(self, kind: str, name: str) -> AsyncGenerator[list[bytes]]:
        """Yields what a key of the shard has, which is of this type, call by call; one of another type is noted."""
        if await self._shard.type_of(name) not in (kind, "none"):
            self.mistyped.append(name)
            return
        verb = "HSCAN" if kind == "hash" else "ZSCAN"
        async for some in scan(self._shard.server, verb, self._shard.base + name, count=SCAN_KEYS):
            yield some

    def _turn_names(self, place: str, members: Iterable[bytes], pattern: re.Pattern[bytes]) -> Iterator[str]:
        """Those of `members` that can name a turn; the others are noted."""
        for member in members:
            if pattern.fullmatch(member):
                yield member.decode()
            elif len(self.misnamed.setdefault(place, [])) < MAX_REMEMBERED:
                self.misnamed[place].append(member)

    def _is_judged(self, member: str) -> bool:
        tenant, digits, *place = member.split("/")
        known = member in self._leftovers or member in self._noted["picture"]
        return not place and (known or bytes.fromhex(digits) in self._balance[tenant])

    def _note(self, row: Judged) -> None:
        tenant, digits, *place = row.member.split("/")
        if place or self._is_judged(row.member):
            return
        for counter in ("bytes", f"bytes/{tenant}"):
            self.counted[counter] += row.bytes
        if row.kind == "-":
            self._leftovers.add(row.member)
            return
        if row.kind == "pictures":
            self._noted["picture"][row.member] = row.children
            if not row.bytes:
                self.empty_pictures.add(row.member)
            return
        digests = "" if row.pictures == "-" else row.pictures
        size = 2 * PICTURE_DIGEST_BYTES
        self._real["picture"].update(f"{tenant}/{digests[at : at + size]}" for at in range(0, len(digests), size))
        if row.said != "-":
            self._real["words"][f"{tenant}/{row.said}"] += 1
        self.turns += 1
        self.newer += row.newer
        itself = bytes.fromhex(digits)
        self._balance[tenant][itself] = row.children - self._awaited[tenant].pop(itself, 0)
        if row.parent != "-":
            self._note_child(tenant, row.parent, digits)
        for field, change in ((row.kind, 1), ("trees", int(row.parent == "-"))):
            self.counted[field] += change
            self.counted[f"{field}/{tenant}"] += change
        if row.jobs:
            self._noted["jobs"][row.member] = row.jobs
        if row.tree != "-":
            self._noted["jobs"].setdefault(f"{tenant}/{row.tree}", 0)
            self._real["jobs"][f"{tenant}/{row.tree}"] += 1
        self.events += row.events
        if row.mixed:
            self._mixed.append(row.member)
        self.unneeded += "unneeded" in row.words

    def _note_child(self, tenant: str, parent: str, digits: str) -> None:
        above = bytes.fromhex(parent)
        if above in self._balance[tenant]:
            self._balance[tenant][above] -= 1
        else:
            self._awaited[tenant][above] += 1
        if self._remembers_children:
            self.children[f"{tenant}/{parent}"].append(digits)

    def wrong_sums(self) -> Iterator[tuple[str, str, int, int]]:
        """The word for the fault, the member, the noted number and the real one, where these differ."""
        for word, noted in self._noted.items():
            for member, number in noted.items():
                if number != self._real[word][member]:
                    yield word, member, number, self._real[word][member]

    def wrong_counters(self, noted: dict[str, int | None]) -> dict[str, int]:
        """The real sum, for each counter that is wrong."""
        fields = {*noted, *(field for field, number in self.counted.items() if number)}
        return {field: self.counted[field] for field in fields if noted.get(field, 0) != self.counted[field]}
