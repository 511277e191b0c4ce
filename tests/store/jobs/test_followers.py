"""Followers over real servers that lose connections, die and move: each event once, in order, up to the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from service.api.events import Event
from service.background.follow import Following
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.jobs.log import EventLog
from store.listening import Listening
from store.redis.connection import connect
from tests.support.service.followed import entry_of, events_of
from tests.support.store.sample import TENANT
from tests.support.store.servers import eventually, server
from tests.support.store.work import log_names

AOF = ("--appendonly", "yes", "--save", "")
EVENTS = 300
FOLLOWERS = 10
BATCH = 3
PAUSE_SECONDS = 0.005

WRITE = """
redis.call('XADD', KEYS[1], ARGV[1] .. '-0', 'b', ARGV[2])
redis.call('SPUBLISH', ARGV[3], ARGV[1] .. ' ' .. ARGV[2])
"""


class Site:
    """One process's connections to a server, and one response there."""

    def __init__(self, url: str, id: str | None = None) -> None:
        self._redis = connect(url)
        self.history = ConversationHistoryStore(self._redis, prefix="test", timeout_seconds=1.0)
        self.listening = Listening(self._redis, timeout_seconds=1.0)
        self.log = EventLog(self.history)
        self.id = id or self.history.new_id()
        self.key, self.channel = log_names(self.history, self.id)

    def follower(self, after: int = -1) -> Following:
        return Following(self.log, self.listening, TENANT, self.id, after)

    async def ask(self, *command: str | bytes | int) -> None:
        """Send a command until it was carried out, which it may have been before."""

        async def attempt() -> None:
            try:
                async with self.history.server.operation() as operation:
                    await operation.command(*command, at=self.key)
            except StoreUnavailable as error:
                if "equal or smaller" not in str(error):
                    raise

        await eventually(attempt, StoreUnavailable)

    async def write(self, *, of: int = EVENTS, at: dict[int, Callable[[], object]] | None = None) -> None:
        """Write all events of a response, some at a time, and do something before the one with a number."""
        events = events_of(of)
        for number in range(0, of, BATCH):
            if at and number in at:
                await asyncio.to_thread(at[number])
            await self._add(events[number : number + BATCH])
            await asyncio.sleep(PAUSE_SECONDS)

    async def begin(self) -> None:
        """Write the first events; `write` goes on behind them."""
        await self._add(events_of(EVENTS)[:BATCH])

    async def _add(self, batch: list[Event]) -> None:
        entry = entry_of(batch)
        await self.ask("EVAL", WRITE, 1, self.key, entry.last + 1, entry.blob, self.channel)

    async def close(self) -> None:
        await self.listening.close()
        await self.history.close()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What has to be closed at the end."""
    async with AsyncExitStack() as stack:
        yield stack


def site(stack: AsyncExitStack, url: str, id: str | None = None) -> Site:
    made = Site(url, id)
    stack.push_async_callback(made.close)
    return made


async def numbers(follower: Following) -> list[int]:
    """The sequence numbers that a follower is handed."""
    return [event.sequence_number async for batch in follower.events() for event in batch]


async def begun(here: Site) -> list["asyncio.Task[list[int]]"]:
    await here.begin()
    return [asyncio.create_task(numbers(here.follower())) for _ in range(FOLLOWERS)]


async def test_a_server_that_is_killed_costs_followers_a_pause(tmp_path: Path, stack: AsyncExitStack) -> None:
    with server(tmp_path, *AOF) as process:
        here = site(stack, f"redis://{process.address}")
        following = await begun(here)

        def crash() -> None:
            process.kill()
            process.restart()

        await here.write(at={99: crash, 201: crash})
        assert await asyncio.gather(*following) == [list(range(EVENTS))] * FOLLOWERS
        await stack.aclose()
