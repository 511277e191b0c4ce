"""The check of a store: every turn is complete, and the counters match what is stored.

It writes nothing: its scripts are read-only on the server. One script call judges a turn, so a sound store never has a
fault, however busy it is. Sums are judged only where the shard did not change meanwhile (shard_check.py); the report
names the others.

With `repair` the shards are checked, then repaired (repair.py) and checked again until nothing is wrong. Never repair
without being asked.
"""

import time
from collections.abc import AsyncGenerator, Iterable

import msgspec

from store.fsck.faults import MEANINGS, Fault
from store.fsck.repair import Repair
from store.fsck.scan import Shard
from store.fsck.shard_check import ShardCheck, Tally
from store.keys import Keyspace
from store.layout import Layout, Terms
from store.redis.connection import Client, Server

ROUNDS = 5
"""How often the store is repaired and checked again."""

MAX_FAULTS = 10_000
"""The most faults that a report keeps; it counts them all."""


class Progress(msgspec.Struct, frozen=True):
    """How far the check is: `turns` judged in this shard, of about `total`; `round` is 0, or that of a repair."""

    shard: int
    turns: int
    total: int
    round: int


class Report(msgspec.Struct, frozen=True):
    """The result over all shards: `found` faults in the first round, and `left` in the last.

    `faults` says of each whether it is repaired. `unjudged` are the shards whose sums were not judged. `unneeded` turns
    are deleted, and go with the next sweep. `newer` turns were written by a later release, and not judged. `unknown`
    counts the keys under the prefix that are not the store's.
    """

    shards: int
    turns: int
    faults: dict[Fault, bool]
    found: int
    left: int
    unjudged: list[int]
    unneeded: int
    newer: int
    unknown: int
    seconds: float


class _Round:
    """One round over all shards."""

    def __init__(self, number: int, *, repairs: bool) -> None:
        self.number = number
        self.repairs = repairs
        self.tally = Tally()
        self.found = 0
        self.faults: set[Fault] = set()

    def is_new(self, fault: Fault) -> bool:
        """Note a fault; whether it is new, as far as faults are kept."""
        if fault in self.faults:
            return False
        self.found += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.add(fault)
        return True


class Fsck:
    """Checks a store, and repairs it."""

    def __init__(
        self,
        redis: Client,
        *,
        prefix: str = "harmonium",
        shards: int = 1,
        timeout_seconds: float = 2.0,
        attempts: int = 3,
        turns_per_second: float = 0.0,
    ) -> None:
        """A check over `redis`, which it closes.

        `turns_per_second` is its pace; 0 is as fast as the server answers. Raises ValueError for a setting that can't
        work.
        """
        if turns_per_second < 0:
            raise ValueError(f"{turns_per_second=} must be positive, or 0 for no pace")
        keyspace = Keyspace(prefix, shards)
        self._server = Server(redis, timeout_seconds=timeout_seconds, attempts=attempts)
        self._layout = Layout(self._server, prefix, Terms(shards))
        self._shards = [Shard(self._server, keyspace, number, turns_per_second) for number in range(shards)]

    async def run(self, *, repair: bool = False) -> AsyncGenerator[Progress | Fault | Report]:
        """Check, and repair if asked to: each fault when it is first found, and in the end the report.

        Raises LayoutMismatch where a release like this one can't judge the store, or not with so few shards, and
        StoreUnavailable.
        """
        began = time.monotonic()
        await self._layout.check()
        first = last = _Round(0, repairs=False)
        async for step in self._go(first):
            yield step
        for number in range(1, ROUNDS + 1):
            if not repair or last.tally.newer or not (last.found or last.tally.unneeded):
                break
            last = _Round(number, repairs=False)
            for each in (_Round(number, repairs=True), last):
                async for step in self._go(each):
                    if isinstance(step, Progress):
                        yield step
        yield self._report(first, last, time.monotonic() - began)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _go(self, wanted: _Round) -> AsyncGenerator[Progress | Fault]:
        for shard in self._shards:
            repair = Repair(shard) if wanted.repairs else None
            check = ShardCheck(shard, wanted.tally, repair)
            async for step in check.run():
                if isinstance(step, int):
                    yield Progress(shard.number, step, max(step, check.total), wanted.number)
                elif wanted.is_new(step):
                    yield step

    def _report(self, first: _Round, last: _Round, seconds: float) -> Report:
        repaired = {each: each not in last.faults for each in _in_order(first.faults)}
        return Report(
            shards=len(self._shards),
            turns=last.tally.turns,
            faults=repaired | dict.fromkeys(_in_order(last.faults - first.faults), False),
            found=first.found,
            left=last.found,
            unjudged=last.tally.unjudged,
            unneeded=last.tally.unneeded,
            newer=last.tally.newer,
            unknown=last.tally.unknown,
            seconds=seconds,
        )


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    rank = {word: place for place, word in enumerate(MEANINGS)}
    return sorted(faults, key=lambda each: (each.shard, rank[each.what], each.id or "", each.detail))
