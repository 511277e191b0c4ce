"""Everything that clients do, at once and for as long as one likes, at a share of what a process can do; and what is
seen of the process and of its Redis meanwhile.

Clients create, stream, continue, fork, retrieve, list and delete; they follow background responses, and cancel some.
For how long they rest follows the process's own CPU, so that it does its share.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic
from typing import Any, NamedTuple

import httpx
from openai import APIStatusError, AsyncOpenAI, BadRequestError
from redis import Redis

from bench._harness import cpu_seconds, held_bytes
from tests.support.service.process import MODEL
from tests.support.service.scraped import Scraped

SETTINGS: dict[str, Any] = {
    "max_responses": 120,
    "store_cache_bytes": 4 << 20,
    "demo_tokens_per_second": 400,
    "archive_url": "none",
}
"""A cap that is met within the first seconds, so that each turn that is stored makes others leave."""

LONG = SETTINGS | {"max_responses": 5000}
"""One that is met within the first minutes, and so high that what Redis holds of requests under way is little beside
it.
"""

MOST_GROWTH, MOST_LAG_SECONDS = 1.03, 0.02
"""What may become of memory and of the loop in an hour; see `growth` and `lag_p99`."""

SAMPLES = 240
"""How often it is looked, however long that is."""

SHARE = 0.7
"""How much of a core the process may take."""

REMEMBERED = 100
"""Responses that clients may come back to: somewhat fewer than are kept, and some have gone nevertheless."""

AT_ONCE = 24
LOOK_SECONDS = 0.5
MOST_SECONDS_MORE = 60.0
CONTINUE_CHANCE, FORK_CHANCE = 0.6, 0.1
LAG = "harmonium_loop_lag_seconds"
GONE, NO_PARENT = 404, "previous_response_not_found"
"""How a request is refused that comes back to what was evicted or deleted meanwhile, and one that goes on from it."""

TOO_LATE = "Cannot cancel a completed response."
TERMINAL = ("completed", "failed", "incomplete", "cancelled")


class Sample(NamedTuple):
    """What was seen at a moment: seconds since the beginning, bytes, the share of a core, and requests so far."""

    seconds: float
    process_bytes: int
    redis_bytes: int
    share: float
    requests: int


class Everything:
    """The clients of one service."""

    def __init__(self, url: str, pid: int, redis: Redis, *, seed: int, share: float = SHARE) -> None:
        """`pid` is the process's, and `share` how much of a core it may take in the mean."""
        self.url = url
        self._pid, self._redis = pid, redis
        self._chance, self._share = Random(seed), share
        self._known: deque[str] = deque(maxlen=REMEMBERED)
        self._pause = 0.0
        self.done: Counter[str] = Counter()
        """How often each kind of request was made to its end."""
        self.gone = 0
        """How many came back to what is no longer there."""
        self.samples: list[Sample] = []
        self._kinds: dict[str, tuple[int, Callable[[AsyncOpenAI], Awaitable[None]]]] = {
            "create": (30, self._create),
            "stream": (30, self._stream),
            "follow": (8, self._follow),
            "cancel": (4, self._cancel),
            "retrieve": (15, self._retrieve),
            "input_items": (5, self._list),
            "delete": (8, self._delete),
        }

    @property
    def missing(self) -> set[str]:
        """The kinds that nobody has made to the end."""
        return self._kinds.keys() - self.done.keys()

    async def run(self, seconds: float, every: float) -> None:
        """Let them act for so long, or on a busy machine until none is missing, and look each so many seconds."""
        until = monotonic() + seconds
        async with AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
            watching = asyncio.create_task(self._watch(until, every))
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(self._act(client, until))
            await watching

    async def _act(self, client: AsyncOpenAI, until: float) -> None:
        names, weights = list(self._kinds), [weight for weight, _ in self._kinds.values()]
        while monotonic() < until or (self.missing and monotonic() < until + MOST_SECONDS_MORE):
            (kind,) = self._chance.choices(names, weights)
            try:
                await self._kinds[kind][1](client)
                self.done[kind] += 1
            except APIStatusError as refusal:
                if refusal.status_code != GONE and refusal.code != NO_PARENT:
                    raise
                self.gone += 1
            await asyncio.sleep(self._pause * self._chance.uniform(0.5, 1.5))

    async def _watch(self, until: float, every: float) -> None:
        """Keep the process at its share, and note what is seen."""
        began = looked = monotonic()
        cpu, due, shares = cpu_seconds(self._pid), began + every, list[float]()
        while looked < until:
            await asyncio.sleep(LOOK_SECONDS)
            now, used = monotonic(), cpu_seconds(self._pid)
            share = (used - cpu) / (now - looked)
            shares.append(share)
            looked, cpu = now, used
            self._pause = min(2.0, max(0.002, self._pause) * (1.15 if share > self._share else 0.87))
            if now >= due:
                due += every
                mean = sum(shares) / len(shares)
                shares.clear()
                self.samples.append(
                    Sample(now - began, held_bytes(self._pid), used_bytes(self._redis), mean, self.done.total())
                )

    def _parent(self) -> str | None:
        """The response to go on from: mostly a late one, now and then any, or none."""
        drawn = self._chance.random()
        if not self._known or drawn > CONTINUE_CHANCE + FORK_CHANCE:
            return None
        return (
            self._any() if drawn < FORK_CHANCE else self._known[-1 - self._chance.randrange(min(8, len(self._known)))]
        )

    def _any(self) -> str:
        return self._known[self._chance.randrange(len(self._known))]

    def _said(self) -> str:
        return f"Count to {self._chance.randint(2, 40)}."

    async def _create(self, client: AsyncOpenAI) -> None:
        made = await client.responses.create(model=MODEL, input=self._said(), previous_response_id=self._parent())
        assert made.status == "completed", made
        self._known.append(made.id)

    async def _stream(self, client: AsyncOpenAI) -> None:
        parent = self._parent()
        async with await client.responses.create(
            model=MODEL, input=self._said(), previous_response_id=parent, stream=True
        ) as events:
            last = [event async for event in events][-1]
        assert last.type == "response.completed", last
        self._known.append(last.response.id)

    async def _follow(self, client: AsyncOpenAI) -> None:
        """A background response, followed by whoever asked for it and by somebody else from its third event on."""
        ended, id = "", ""
        async with await client.responses.create(
            model=MODEL, input=self._said(), background=True, stream=True
        ) as events:
            async for event in events:
                if event.type == "response.created":
                    id = event.response.id
                ended = event.type
        assert ended == "response.completed", ended
        async with await client.responses.retrieve(id, stream=True, starting_after=2) as events:
            numbers = [event.sequence_number async for event in events]
        assert numbers == list(range(3, 3 + len(numbers)))
        self._known.append(id)

    async def _cancel(self, client: AsyncOpenAI) -> None:
        made = await client.responses.create(model=MODEL, input="Write a story of 600 words.", background=True)
        try:
            ended = await client.responses.cancel(made.id)
            assert ended.status in TERMINAL, ended
        except BadRequestError as refusal:
            if not refusal.message.endswith(TOO_LATE):
                raise

    async def _retrieve(self, client: AsyncOpenAI) -> None:
        if self._known:
            found = await client.responses.retrieve(self._any())
            assert found.status == "completed", found

    async def _list(self, client: AsyncOpenAI) -> None:
        if self._known:
            page = await client.responses.input_items.list(self._any())
            assert page.data

    async def _delete(self, client: AsyncOpenAI) -> None:
        if self._known:
            await client.responses.delete(self._known.popleft())


def used_bytes(redis: Redis) -> int:
    told: Any = redis.info("memory")
    return int(told["used_memory"])


async def lag_p99(url: str) -> float:
    """By how many seconds the loop was late at most, in 99 of 100 looks; within a bucket as Prometheus reckons it."""
    return p99(await lags(url))


async def lags(url: str) -> Counter[float]:
    """How often a process's loop was late by up to so many seconds, in all."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        scraped = Scraped((await http.get("/metrics")).text)
    return Counter(
        {float(each.labels["le"]): int(each.value) for each in scraped.samples if each.name == f"{LAG}_bucket"}
    )


def p99(counts: Counter[float]) -> float:
    """The most seconds in 99 of 100 looks, within a bucket as Prometheus reckons it."""
    wanted, below, least = 0.99 * max(counts.values()), 0, 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            return least + (bound - least) * (wanted - below) / (count - below)
        below, least = count, bound
    raise AssertionError("the last bucket has no bound")


def growth(samples: list[Sample], figure: Callable[[Sample], int]) -> float:
    """How many times the mean of the second quarter that of the last is: before it, caches fill and the cap is met."""
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    return (sum(map(figure, last)) / len(last)) / (sum(map(figure, second)) / len(second))
