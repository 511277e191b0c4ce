"""Responses under way on a fleet, and whoever follows them, while somebody makes trouble."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.chaos.aftermath import Aftermath, output
from tests.support.chaos.fleet import Fleet
from tests.support.chaos.follower import Follower
from tests.support.service.process import MODEL
from tests.support.waiting import until

LEASE_SECONDS = 2.0
STEADY: dict[str, Any] = {"lease_seconds": 12.0, "store_timeout_seconds": 4.0}
"""Leases of processes that are begun many at once, which two cores carry out slowly."""

QUICK: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "store_timeout_seconds": 0.7}
"""Short leases, so that much happens in little time."""

SETTINGS: dict[str, Any] = QUICK | {
    "demo_tokens_per_second": 50,
    "worker_concurrency": 100,
    "shutdown_seconds": 2,
    "log_format": "json",
}
"""There is room for all responses where one worker is gone."""

COUNTING = "Count to {}, one number a line."
SETTLE_SECONDS = 30.0
STORM_SECONDS = 900.0
"""How long the longest may take."""


class Storm:
    """So many responses of a model that count, each with its follower."""

    def __init__(self, fleet: Fleet, responses: int, numbers: int, model: str = MODEL) -> None:
        self.fleet = fleet
        self._model = model
        self.followers = [Follower(self._urls, fleet.chance) for _ in range(responses)]
        self._numbers = numbers
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def seen(self) -> int:
        """How many events have come to the followers."""
        return sum(len(each.events) for each in self.followers)

    async def seen_by_all(self, events: float) -> None:
        """Wait until so many events have come to the followers together, or all is over."""

        def seen() -> bool:
            over = [task for task in self._tasks if task.done()]
            for task in over:
                task.result()
            return self.seen >= events or len(over) == len(self._tasks)

        await until(seen, STORM_SECONDS)

    async def speaking(self, events: int = 50) -> None:
        """Wait until each response has said so much more, or is over."""
        wanted = {each: len(each.events) + events for each in self.followers}
        await until(
            lambda: all(each.over or len(each.events) >= wanted[each] for each in self.followers),
            SETTLE_SECONDS,
            "some are silent",
        )

    def _urls(self) -> list[str]:
        """The APIs that may be asked, as a load balancer knows them: not those that leave, but those that died."""
        return [api.url for api in self.fleet.apis if not api.leaving]

    async def start(self) -> None:
        asked = COUNTING.format(self._numbers)
        self._tasks = [asyncio.create_task(each.create(model=self._model, input=asked)) for each in self.followers]

    async def over(self, seconds: float) -> None:
        """Wait until all have come to their end."""
        async with asyncio.timeout(seconds):
            await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Give up what is not over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def check(self) -> None:
        """Every follower saw the whole of a response that completed, and the store has the same."""
        numbers = "\n".join(map(str, range(1, self._numbers + 1)))
        for each in self.followers:
            response = each.response
            assert response["status"] == "completed", (each.id, response["error"])
            assert each.text == numbers, each.id
        async with Aftermath(self.fleet.settings) as aftermath:
            await until(aftermath.ended, SETTLE_SECONDS, "jobs are left")
            ids = await aftermath.ids()  # some whose creation was cut off, before anybody learned their id
            assert {each.id for each in self.followers} <= ids
            await aftermath.check(ids)
            said = {output(await aftermath.response(id)) for id in ids}
            assert len(said) == 1, "some say something else"

    async def check_usage(self) -> None:
        """What was counted of usage is what all responses say, also those whose creation was cut off."""
        async with Aftermath(self.fleet.settings) as aftermath:
            await aftermath.check_usage()


@asynccontextmanager
async def storm(fleet: Fleet, responses: int, numbers: int, model: str = MODEL) -> AsyncIterator[Storm]:
    """Responses under way, until the end of the block."""
    made = Storm(fleet, responses, numbers, model)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
