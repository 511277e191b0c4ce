"""The check of a store: that every turn is stored whole, and that what is counted is what is stored.

It goes over each shard and writes nothing: the server itself permits its scripts no write. What is wrong with one turn
is a fact of one moment, and so nothing wrong is ever said of a sound store, however busy. Sums are judged where the
shard stood still meanwhile (checking.py); where it didn't, the report says that they were not judged.

With `repair` the shards are checked once, then mended (mending.py) and checked again until nothing is wrong.
"""

import time
from collections.abc import AsyncGenerator, Iterable

import msgspec

from store.fsck.faults import MEANINGS, Complaint
from store.fsck.repair import Mender
from store.fsck.scan import Shard
from store.fsck.shard_check import ShardCheck, Tally
from store.keys import Keyspace
from store.redis.connection import Client, Server

ROUNDS = 5
"""How often the store is mended and checked again."""

MAX_COMPLAINTS = 10_000
"""The most complaints that a report keeps; it counts them all."""


class Progress(msgspec.Struct, frozen=True):
    """How far the check is: turns judged in this shard, of about `total`; `round` is 0, or that of a repair."""

    shard: int
    turns: int
    total: int
    round: int


class Report(msgspec.Struct, frozen=True):
    """What the check came to in the end: `found` complaints at first and `left` at last, in all shards.

    `complaints` says of each that is kept whether it is mended. `unjudged` are the shards whose sums were not judged.
    `unneeded` turns were deleted, and go with the next sweep. `newer` turns were written by a later release, and not
    judged; of `unknown` keys nobody knows what they are.
    """

    shards: int
    turns: int
    complaints: dict[Complaint, bool]
    found: int
    left: int
    unjudged: list[int]
    unneeded: int
    newer: int
    unknown: int
    seconds: float


class _Round:
    """What one round over all shards finds."""

    def __init__(self, number: int, mends: bool) -> None:
        self.number = number
        self.mends = mends
        self.tally = Tally()
        self.found = 0
        self.complaints: set[Complaint] = set()

    def is_new(self, complaint: Complaint) -> bool:
        """Note a complaint; whether it was not heard before, as far as they are kept."""
        if complaint in self.complaints:
            return False
        self.found += 1
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.add(complaint)
        return True


class Fsck:
    """Checks a store, and mends it."""

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
        self._shards = [Shard(self._server, keyspace, number, turns_per_second) for number in range(shards)]

    async def run(self, *, repair: bool = False) -> AsyncGenerator[Progress | Complaint | Report]:
        """Check, and with `repair` mend: each complaint as it is found first, and in the end the report.

        Raises StoreUnavailable.
        """
        began = time.monotonic()
        first = last = _Round(0, mends=False)
        async for step in self._go(first):
            yield step
        for number in range(1, ROUNDS + 1):
            if not repair or last.tally.newer or not (last.found or last.tally.unneeded):
                break
            last = _Round(number, mends=False)
            for each in (_Round(number, mends=True), last):
                async for step in self._go(each):
                    if isinstance(step, Progress):
                        yield step
        yield self._report(first, last, time.monotonic() - began)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _go(self, wanted: _Round) -> AsyncGenerator[Progress | Complaint]:
        for shard in self._shards:
            mender = Mender(shard) if wanted.mends else None
            check = ShardCheck(shard, wanted.tally, mender)
            async for step in check.run():
                if isinstance(step, int):
                    yield Progress(shard.number, step, max(step, check.total), wanted.number)
                elif wanted.is_new(step):
                    yield step

    def _report(self, first: _Round, last: _Round, seconds: float) -> Report:
        mended = {each: each not in last.complaints for each in _in_order(first.complaints)}
        return Report(
            shards=len(self._shards),
            turns=last.tally.turns,
            complaints=mended | dict.fromkeys(_in_order(last.complaints - first.complaints), False),
            found=first.found,
            left=last.found,
            unjudged=last.tally.unjudged,
            unneeded=last.tally.unneeded,
            newer=last.tally.newer,
            unknown=last.tally.unknown,
            seconds=seconds,
        )


def _in_order(complaints: Iterable[Complaint]) -> list[Complaint]:
    rank = {word: place for place, word in enumerate(MEANINGS)}
    return sorted(complaints, key=lambda each: (each.shard, rank[each.what], each.id or "", each.detail))
