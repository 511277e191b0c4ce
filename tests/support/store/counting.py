"""What a store is asked, counted by the server itself: each command or script is a round trip."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import Redis

LAST = "counting-is-over"
"""A key that is asked for last, so that all before it was heard."""


class Counted:
    """The first words of what was asked about keys that have a mark, in its order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def about(self, *words: str) -> int:
        """How often it was asked for what has one of these words."""
        return sum(any(word in each for word in words) for each in self.asked)


@asynccontextmanager
async def counting(url: str, mark: str) -> AsyncIterator[Counted]:
    """All that is asked about keys with a mark, until the end of the block; what scripts do themselves is no asking."""
    counted, heard = Counted(), asyncio.Event()
    async with Redis.from_url(url) as redis, Redis.from_url(url) as asking, redis.monitor() as monitor:

        async def listen() -> None:
            async for said in monitor.listen():
                command = str(said["command"])
                if LAST in command:
                    heard.set()
                elif mark in command and said["client_type"] != "lua":
                    counted.asked.append(command)

        listening = asyncio.create_task(listen())
        try:
            yield counted
            await asking.get(LAST)
            await heard.wait()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
