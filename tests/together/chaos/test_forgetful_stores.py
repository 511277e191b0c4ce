"""A store that comes back without what it was told last: after a power cut, or as the replica that takes over.

What it lacks is always what came last, so putting back an earlier picture of all its keys is the same.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from service.api.events import Event
from service.api.response import ResponseStatus
from service.background.timing import TIMING, Timing
from service.process import Settings, load_settings
from service.responses.service import Service
from store.embedded import EmbeddedServer
from store.redis.connection import connect
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, answer, counted, follow, opened, queue, working
from tests.support.chaos.storm import STEADY
from tests.support.waiting import until

COUNTED = 100
SECONDS = 30.0

SHORT: dict[str, Any] = {"lease_seconds": 6.0, "store_timeout_seconds": 2.0}
"""A lease for whose end a test can wait, and patience with a store that is busy."""

TAKE = """
local taken = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  for _, each in ipairs({ key, redis.call('DUMP', key), math.max(0, redis.call('PTTL', key)) }) do
    taken[#taken + 1] = each
  end
end
return taken
"""
PUT_BACK = """
redis.call('FLUSHALL')
for at = 1, #ARGV, 3 do
  redis.call('RESTORE', ARGV[at], ARGV[at + 2], ARGV[at + 1])
end
"""


@dataclass
class World:
    """A response that is being made and followed, and the store behind it."""

    settings: Settings
    redis: Redis
    service: Service
    engine: WatchedEngine
    id: str
    seen: list[Event]
    following: asyncio.Task[None]

    async def see(self, more: int) -> None:
        """Wait until the follower has seen so many more events."""
        wanted = len(self.seen) + more
        await until(lambda: len(self.seen) >= wanted, SECONDS, "it says nothing more")

    async def picture(self) -> list[Any]:
        return cast(list[Any], await self.redis.eval(TAKE, 0))

    async def put_back(self, picture: list[Any]) -> None:
        """Let it know no more than that."""
        await self.redis.eval(PUT_BACK, 0, *picture)

    async def is_whole(self) -> None:
        """Wait until the response has ended; it is as if nothing had happened."""
        await self.following
        async with Aftermath(self.settings) as aftermath:
            await until(aftermath.ended, SECONDS, "the job is stuck")
            await aftermath.check([self.id])
            response = await aftermath.response(self.id)
            assert (response.status, answer(response)) == (ResponseStatus.COMPLETED, counted(COUNTED))
            said = await aftermath.events(self.id)
            assert self.seen[:-1] == said[:-1]  # the last one has the time in it


@pytest.fixture
async def world(tmp_path: Path, timing: Timing, until_its_end: bool, asked: int | None) -> AsyncIterator[World]:
    with EmbeddedServer(tmp_path / "store") as server:
        waits = until_its_end or asked is None  # for the end of a lease
        settings = load_settings(redis_url=server.url, **(SHORT if waits else STEADY))
        engine = WatchedEngine(tokens_per_second=200)
        redis = connect(server.url)
        assert isinstance(redis, Redis)
        async with opened(settings) as service, working(settings, engine, timing):
            id = await queue(service, f"Count to {COUNTED}.")
            seen: list[Event] = []
            yield World(settings, redis, service, engine, id, seen, asyncio.create_task(follow(service, id, seen)))
        await redis.aclose()


@pytest.mark.parametrize(
    ("timing", "before", "until_its_end", "asked"),
    [
        (TIMING, 60, False, 1),
        (Timing(kept_seconds=0.0), 60, False, 2),
        (TIMING, 60, True, 2),
        (TIMING, 0, False, None),
    ],
    ids=["written again", "sampled again, as nobody has it", "an end comes again", "a claim is nobody's"],
)
async def test_what_a_store_forgot_comes_again(
    world: World, before: int, until_its_end: bool, asked: int | None
) -> None:
    await world.see(before)
    picture = await world.picture()
    if until_its_end:
        await world.following
    else:
        await world.see(60)
    await world.put_back(picture)
    await world.is_whole()
    assert asked in (None, world.engine.asked[world.id])
