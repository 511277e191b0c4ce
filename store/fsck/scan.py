"""A shard as the check sees it: its name, and the ways to ask for all of it without holding anyone up.

Each question is an operation of its own, so it is answered in time or is StoreUnavailable. Nothing here writes.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from store import codec
from store.fsck.faults import Fault
from store.jobs.model import LEVELS
from store.keys import COUNTERS, HEX_DIGITS, Keyspace, name_of
from store.redis import scripts
from store.redis.connection import Server

SCAN_KEYS = 500
"""How many keys one SCAN looks at."""

TURNS = 25
"""How many turns one script call judges, which takes about a millisecond."""

KINDS = {
    **dict.fromkeys(("clock", "logged", "looked", "secret"), "string"),
    **dict.fromkeys(("archive", "archive-deletions", "archive-id", "older"), "string"),
    **dict.fromkeys(
        ("tombstones", "trees", "leases", "logs", "outbox", "outbox-ages", "reservations", "unarchived"),
        "zset",
    ),
    **dict.fromkeys((f"usage:{field}" for field in COUNTERS), "zset"),
    **dict.fromkeys((f"{name}:{level}" for name in ("queued", "turn") for level in range(LEVELS)), "zset"),
    **dict.fromkeys(("usage", "sweeps", "waiting-bytes", "outbox-tries", "store"), "hash"),
    **dict.fromkeys(("registry", "registry-used", "archive-failed"), "hash"),
    **dict.fromkeys(("audit-entries", "audit-shares"), "zset"),
}
"""The keys that all trees of a shard share, by name, with their types of value."""

PLACES = ("leases", "logs", *(f"queued:{level}" for level in range(LEVELS)))
"""Those that name jobs and logs, as lua/judging.lua knows them."""

_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
"""A number that Redis can count with."""


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


class Shard:
    """The keys of one shard on their server."""

    def __init__(self, server: Server, keyspace: Keyspace, number: int, turns_per_second: float) -> None:
        """`turns_per_second` is the pace of judging; 0 is as fast as the server answers."""
        self.number = number
        self.server = server
        self.keys = keyspace.all_shards()[number]
        self.base = self.keys.turns.removesuffix("t:")
        self._turns_per_second = turns_per_second

    def fault(self, what: str, member: str = "", detail: str = "") -> Fault:
        """A fault of the turn TENANT/DIGITS, or of the shard."""
        tenant, _, digits = member.partition("/")
        id = name_of(digits[:HEX_DIGITS]) if digits else None
        return Fault(self.number, what, tenant or None, id, detail)

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

    async def is_endless(self, name: str) -> bool:
        """Whether a key is there and never expires."""
        return await self.server.command("PTTL", self.base + name) == -1

    async def counters(self) -> dict[str, int | None]:
        """The counters of the shard, and FIELD/TENANT of tenants; None is one that isn't a number."""
        fields = await self._fields()
        found = {**fields, **await self._ranked()}
        return {name: int(value) if _NUMBER.fullmatch(value) else None for name, value in found.items()}

    async def _fields(self) -> dict[str, bytes]:
        """The counters of the shard."""
        found: dict[str, bytes] = {}
        async for some in self.scan("HSCAN", self.keys.usage):
            found.update(
                (name, value) for field, value in _pairs(some) if (name := field.decode("utf-8", "replace")) in COUNTERS
            )
        return found

    async def _ranked(self) -> dict[str, bytes]:
        """The counters of tenants, as FIELD/TENANT."""
        found: dict[str, bytes] = {}
        for counter in COUNTERS:
            async for some in self.scan("ZSCAN", f"{self.keys.usage}:{counter}"):
                for tenant, value in _pairs(some):
                    found[f"{counter}/{tenant.decode('utf-8', 'replace')}"] = value
        return found

    async def total(self) -> int:
        """How many turns there are, by the counters."""
        counted = (await self.moment()).sums.split(" ")[1:3]
        return sum(int(number) for number in counted if number.isdigit())

    async def scan(self, command: str, key: str = "", match: str = "*") -> AsyncGenerator[list[bytes]]:
        """Yields the results of SCAN on the shard's server, or of HSCAN, SSCAN or ZSCAN of one key, call by call."""
        cursor: bytes | int = 0
        scanned = [key] if key else []
        while cursor != b"0":
            async with self.server.operation() as operation:
                args = (command, *scanned, cursor, "MATCH", match, "COUNT", SCAN_KEYS)
                cursor, found = await operation.command(*args, at=self.keys.clock)
            yield found

    async def judge(self, members: Iterable[str]) -> AsyncGenerator[list[list[str]]]:
        """Yields the rows of lua/inspect_turns.lua for some turns, call by call: the words of each."""
        for some in batches(members):
            _, *rows = await self.server.run(
                scripts.inspect_turns, self.keys, members=" ".join(some), version=codec.FORMAT
            )
            yield [row.decode().split(" ") for row in rows]
            if self._turns_per_second:
                await asyncio.sleep(len(some) / self._turns_per_second)


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def batches(members: Iterable[str], size: int = TURNS) -> Iterator[list[str]]:
    """Lists of at most `size` of them, in order."""
    left = iter(members)
    while some := list(islice(left, size)):
        yield some
