"""Cancels at any moment, by another API than theirs: answered at once, and nothing goes on behind them."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

import httpx
import pytest

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.inside import WatchedEngine, working
from tests.support.chaos.storm import SETTINGS
from tests.support.lengths import lengths
from tests.support.waiting import until

JSON = {"content-type": "application/json"}

AT_ONCE = 30
CONCURRENCY = 20
"""Responses under way at once, and how many of them are worked on: the others wait in the queue."""

MOST_SECONDS = 1.5
"""The longest that a response is left in peace."""

REPLY_SECONDS, GONE_SECONDS = 1.0, 1.0
"""What a reply may take, and how long the engine may go on behind it, on cores that others share. 0.1 and 0.25 are
promised, and kept where nobody else is busy: docs/operating.md has the figures."""

READS = 10
"""And where nothing is quick: how many reads of a response they may take besides."""

pytestmark = pytest.mark.timeout(300)


class Canceller:
    """Creates responses, one after another, and cancels each a while later."""

    def __init__(self, fleet: Fleet, engine: WatchedEngine) -> None:
        first, second = fleet.apis
        self._url = first.url
        self._http = httpx.AsyncClient(base_url=second.url, timeout=30, trust_env=False, verify=False)
        self._chance = fleet.chance
        self._engine = engine
        self.reads: list[float] = []
        """How long a read of the response took right before, in seconds."""
        self.replies: list[float] = []
        """How long each reply took, in seconds."""
        self.gone: list[float] = []
        """How long the engine sampled on behind each reply."""
        self.ids: list[str] = []
        self.began = 0
        """How many had begun."""

    async def aclose(self) -> None:
        await self._http.aclose()

    async def cancel_some(self, number: int) -> None:
        for _ in range(number):
            await self._cancel_one()

    async def _cancel_one(self) -> None:
        follower = Follower(lambda: [self._url], self._chance)
        following = asyncio.create_task(follower.create(input="Count to 10000."))
        await until(lambda: follower.id, 30, "nothing was created")
        assert follower.id is not None
        await asyncio.sleep(self._chance.uniform(0, MOST_SECONDS))
        asked = time.monotonic()
        await self._http.get(f"/v1/responses/{follower.id}")
        begun = time.monotonic()
        reply = await self._http.post(f"/v1/responses/{follower.id}/cancel", headers=JSON)
        replied = time.monotonic()
        assert (reply.status_code, reply.json()["status"]) == (200, "cancelled"), reply.text
        await until(lambda: not self._engine.sampling[follower.id], 30, "the engine goes on")
        await following
        assert (follower.events[-1]["type"], follower.response["status"]) == ("response.failed", "cancelled")
        assert follower.response == reply.json()
        self.reads.append(begun - asked)
        self.replies.append(replied - begun)
        self.gone.append(max(0.0, self._engine.stopped.get(follower.id, 0.0) - replied))
        self.began += follower.id in self._engine.stopped
        self.ids.append(follower.id)


def high(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


@pytest.mark.parametrize(("seed", "cancels"), lengths((5, 60), (24, 1020)))
async def test_cancels_are_answered_at_once_and_leave_nothing_under_way(
    tmp_path: Path, seed: int, cancels: int
) -> None:
    settings = SETTINGS | {"worker_concurrency": CONCURRENCY}
    async with running(tmp_path, seed, workers=0, **settings) as fleet:
        engine = WatchedEngine(tokens_per_second=100)
        canceller = Canceller(fleet, engine)
        async with Aftermath(fleet.settings) as aftermath, aclosing(canceller):
            async with working(fleet.settings, engine):
                await asyncio.gather(*(canceller.cancel_some(cancels // AT_ONCE) for _ in range(AT_ONCE)))
                assert not any(engine.sampling.values())
            await aftermath.check(canceller.ids)
    replies, gone, besides = canceller.replies, high(canceller.gone), READS * high(canceller.reads)
    print(f"replies: p50 {median(replies) * 1e3:.0f} ms, p99 {high(replies) * 1e3:.0f}; gone: {gone * 1e3:.0f}")
    assert 0 < canceller.began < cancels, "all of them had begun, or none"
    assert high(replies) < REPLY_SECONDS + besides
    assert gone < GONE_SECONDS + besides
