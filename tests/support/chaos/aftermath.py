"""What has to be true of a store when all is over: whole responses, logs that add up to them, and nothing else."""

import re
import time
from collections.abc import Iterable
from typing import Self

import msgspec
from redis.asyncio import Redis

from service.api import events
from service.api.response import Response, decode_response
from service.process import Settings
from service.responses.output.fold import Fold
from service.responses.output.journal import decode_batch
from service.settings.core import DEFAULT_TENANT
from store.fsck.faults import Fault
from store.history.history import ConversationHistoryStore
from store.jobs.log import EventLog
from store.keys import NO_RESPONSES, id_of, mark_of
from store.redis.connection import connect
from store.spending import HOUR_SECONDS, Spending, Sums
from tests.support.store.verdict import checked

UNDER_WAY = ("job", "spec", "runs", "pins")
"""The families of keys that no response has once it has ended."""

WAITING = re.compile(rb"leases|queued:\d|line:.*")
"""The keys of a shard that are there only while jobs are."""

FOR_EVER = -1
"""What Redis says of a key that doesn't go by itself."""

HOURS = 24
"""For how long a test may have gone on."""

Used = dict[str, Sums]
"""Usage by tenant."""

MOST_ENTRIES = 100_000


class Aftermath:
    """A store to look at, until the end of its block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        redis = connect(settings.redis_url)
        assert isinstance(redis, Redis)
        self._redis = redis
        self._history = ConversationHistoryStore(
            connect(settings.redis_url), prefix=settings.redis_prefix, shards=settings.shards
        )
        self._log = EventLog(self._history)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._history.close()
        await self._redis.aclose()

    async def ended(self, *ids: str) -> bool:
        """Whether responses have ended, and nothing is left of their jobs."""
        return not await self.left_over() and {*ids} <= await self.ids()

    async def ids(self) -> set[str]:
        digits = [key.rpartition(b":")[2].decode() for key in await self._keys("node")]
        return {id_of(each) for each in digits if mark_of(each) not in NO_RESPONSES}

    async def response(self, id: str) -> Response:
        """A response as it was stored; it has ended."""
        found = await self._history.find(DEFAULT_TENANT, id)
        assert not found.under_way, (id, found.status)
        return decode_response(found.response)

    async def events(self, id: str) -> list[events.Event]:
        entries = await self._log.read(DEFAULT_TENANT, id, -1, MOST_ENTRIES)
        return [event for entry in entries for event in decode_batch(entry.blob, entry.last).events]

    async def check(self, ids: Iterable[str]) -> None:
        """Each response equals the fold of its log, whose numbers have no gaps; nobody is at work; nothing is wrong."""
        for id in ids:
            said = await self.events(id)
            assert [event.sequence_number for event in said] == list(range(len(said))), id
            assert isinstance(said[-1], events.Terminal), id
            fold = Fold()
            fold.add(said)
            assert fold.response == await self.response(id), id
        assert await self.left_over() == []
        faults = await self.complaints()
        assert faults == [], faults

    async def used(self) -> Used:
        """What was counted of usage, of all tenants and hours."""
        counted: Used = {}
        now = int(time.time()) // HOUR_SECONDS
        spending = Spending(self._history)
        for shard in range(spending.shards):
            hour = now - HOURS
            while hour <= now + 1:
                rows, hour = await spending.sums(shard, hour, now + 1)
                for row in rows:
                    counted[row.spender.tenant] = counted.get(row.spender.tenant, Sums()).plus(row.sums)
        return counted

    async def used_by_responses(self) -> Used:
        """What all responses that are stored say that they used."""
        said: Used = {}
        for key in await self._keys("node"):
            tenant, _, digits = key.decode().rsplit(":", 3)[1:]
            if mark_of(digits) in NO_RESPONSES:
                continue
            found = await self._history.find(tenant, id_of(digits))
            usage = decode_response(found.response).usage
            assert usage is not None, (digits, found.status)
            read, written = usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens
            own = Sums(1, usage.input_tokens, read, usage.output_tokens, written)
            said[tenant] = said.get(tenant, Sums()).plus(own)
        return said

    async def check_usage(self) -> None:
        """What was counted is what the responses say, all of which have ended and are stored."""
        assert await self.used() == await self.used_by_responses()

    async def left_over(self, *, timed: bool = True) -> list[bytes]:
        """The keys of what is still under way; without those that are `timed`, which go by themselves."""
        prefix = self._settings.redis_prefix.encode()
        found = [key for family in UNDER_WAY for key in await self._keys(family)]
        shared = [key async for key in self._redis.scan_iter(prefix + b":{??}:*", count=1000)]
        found += [key for key in shared if WAITING.fullmatch(key.removeprefix(prefix)[6:])]
        return [key for key in found if timed or await self._redis.pttl(key) == FOR_EVER]

    async def held_seconds(self, *, of: str = "") -> float:
        """For how long anything will be held at most by who doesn't renew that; or one conversation."""
        pins = await self._keys("pins")
        times = [await self._redis.pttl(key) for key in pins if key.endswith(of.removeprefix("conv_").encode())]
        return max(times, default=0) / 1000

    async def complaints(self) -> list[Fault]:
        report = await checked(self._settings.redis_url, self._settings.redis_prefix, self._settings.shards)
        return list(report.faults)

    async def _keys(self, family: str) -> list[bytes]:
        pattern = f"{self._settings.redis_prefix}:*:{family}:*"
        return [key async for key in self._redis.scan_iter(pattern, count=1000)]


def output(response: Response) -> bytes:
    """What a response says, without the ids in it: of two that say the same it is the same."""
    return re.sub(rb'"(rs|msg|fc)_[0-9a-f]+"', b'""', msgspec.json.encode(response.output))
