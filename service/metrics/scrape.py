"""The answer to a scrape: what the processes counted, and what the shards hold now.

The store's figures are read for each scrape, never kept: every replica shows the same. Without the store only those
gauges are missing. Never read or sum anything here that takes longer with more conversations.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import sleep
from typing import NamedTuple, cast

from prometheus_client import Metric, exposition
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from service import logs
from service.build import Build, this_build
from service.engine.engines import Engines
from service.engine.port import Load
from service.errors import unavailable
from service.metrics.counters import Description, Metrics
from service.metrics.processes import Together
from service.settings.core import MAX_FOLLOWERS, MAX_QUEUED_REQUESTS, MAX_SOCKETS, CoreSettings
from store.errors import StoreError
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits, Priority, QueueFigures

logger = logging.getLogger(__name__)

MAX_SCRAPES = 4
"""How many may be under way in a process. One every few seconds is usual, two where Prometheus has a twin."""

STORE_SECONDS = 2.0
"""How long a scrape waits for what the shards hold: Prometheus gives up after ten by default."""

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_END = b"# EOF\n"

_as_openmetrics = cast(Callable[[Collector], bytes], openmetrics.generate_latest)  # pyright: ignore[reportUnknownMemberType]


ReadShards = Callable[[], Awaitable[Mapping[int, QueueFigures]]]
"""Reads what every shard holds, by its number. Raises StoreError."""

SHARD_COUNTS = ("max_responses", "max_trees", "max_queued_responses")
SHARD_BYTES = ("max_bytes", "max_event_log_bytes")
BUILD = Description("build_info", "Always 1; the build is its labels.", **dict.fromkeys(Build._fields, ()))
ENGINE_UP = Description(
    "engine_up",
    "1 if the server of the engine was up when this process last asked it, else 0.",
    server=(),
)
ENGINE_TOKENS = Description(
    "engine_tokens",
    "Tokens of this process's generations at a server: their prompts, and the output expected of each.",
    server=(),
)
ENGINE_ROOM = Description(
    "engine_room_tokens", "Tokens for which a server has room, as it reports or the settings say.", server=()
)
ENGINE_WAITING = Description("engine_waiting", "Generations of this process that wait for room at a server.")
LIMIT = Description(
    "limit",
    "Limits of numbers that aren't off, each of a shard, or of all processes behind the port together; some are fixed.",
    setting=(
        *(*SHARD_COUNTS, "max_webhooks_pending", "max_concurrent_requests"),
        *("max_queued_requests", "max_followers", "max_sockets"),
    ),
)
LIMIT_BYTES = Description("limit_bytes", "Limits of bytes that aren't off, each of a shard.", setting=SHARD_BYTES)
STORE_UP = Description("store_up", "1, or 0 if the shards can't be read now; then their metrics are missing.")
LEVELS = ("resumed", *(priority.name.lower() for priority in Priority))
QUEUED = Description("queue_jobs", "Background responses that wait for a worker.", shard=(), priority=LEVELS)
SHARD_GAUGES = {
    "oldest_seconds": Description(
        "queue_oldest_seconds",
        "How long the oldest of those without a completion window has waited; 0 if there is none.",
        shard=(),
    ),
    "running": Description("jobs_running", "Background responses that a worker holds a lease on.", shard=()),
    "log_bytes": Description("event_log_bytes", "Bytes that the server holds for event logs.", shard=()),
    "responses": Description("store_responses", "Stored responses.", shard=()),
    "trees": Description("store_trees", "Stored trees: conversations with all their forks.", shard=()),
    "bytes": Description("store_bytes", "Bytes that the server holds for conversations.", shard=()),
    "pending": Description("webhooks_pending", "Webhooks that no receiver has accepted yet.", shard=()),
}
"""The gauges of a shard, by the fields of Queue."""

SCRAPED = (
    BUILD,
    ENGINE_UP,
    ENGINE_TOKENS,
    ENGINE_ROOM,
    ENGINE_WAITING,
    LIMIT,
    LIMIT_BYTES,
    STORE_UP,
    QUEUED,
    *SHARD_GAUGES.values(),
)


class Holdings(NamedTuple):
    """The part of a scrape that a person wants to see.

    The limits that aren't off; what each shard holds, None where that can't be read now; which of the engine's servers
    are up, how much they have to do for this process, and how many generations wait for room there; and how many turns
    went that nobody deleted, by the reason, as the processes counted.
    """

    limits: Mapping[str, float]
    shards: Mapping[int, QueueFigures] | None
    servers: Mapping[str, bool]
    loads: Mapping[str, Load]
    waiting: int
    removed: Mapping[str, int]


class Exposition:
    """Answers scrapes, and tells people what is in them."""

    def __init__(
        self,
        metrics: Metrics,
        read_shards: ReadShards,
        engines: Engines,
        limits: Mapping[str, float],
        *,
        store_seconds: float = STORE_SECONDS,
    ) -> None:
        self._counted = metrics.registry if metrics.folder is None else Together(metrics.folder)
        self._alone = metrics.folder is None
        (removed,) = metrics.turns_removed.describe()
        self._removed_name = removed.name
        self._read_shards = read_shards
        self._engines = engines
        self._limits = limits
        self._store_seconds = store_seconds
        self._under_way = 0

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, as the Accept header wants it. Raises ApiError 503 if too many are under way.

        It is put together in a thread, as files may be slow, which lets the event loop go on after every family.
        """
        with self._one_more():
            shards = await self._shards()
            return await asyncio.to_thread(self._encode, shards, OPENMETRICS in accept)

    async def holdings(self) -> Holdings:
        with self._one_more():
            shards = await self._shards()
            removed = await asyncio.to_thread(self._removals)
        engines = self._engines
        return Holdings(self._limits, shards, engines.servers(), engines.loads(), engines.waiting, removed)

    @contextmanager
    def _one_more(self) -> Generator[None]:
        """One scrape more is under way. Raises ApiError 503 if too many are."""
        if self._under_way >= MAX_SCRAPES:
            raise unavailable(f"This process answers {MAX_SCRAPES} scrapes already. Try again in a moment.")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def _removals(self) -> dict[str, int]:
        return {
            sample.labels["reason"]: int(sample.value)
            for family in self._counted.collect()
            if family.name == self._removed_name
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    def _encode(self, shards: Mapping[int, QueueFigures] | None, open_format: bool) -> tuple[bytes, str]:
        encode = _as_openmetrics if open_format else exposition.generate_latest
        text = bytearray()
        for family in self._families(shards):
            text += encode(_One(family)).removesuffix(OPENMETRICS_END)
            sleep(0)  # lets go of the interpreter
        if open_format:
            return bytes(text + OPENMETRICS_END), openmetrics.CONTENT_TYPE_LATEST
        return bytes(text), exposition.CONTENT_TYPE_PLAIN_0_0_4

    def _families(self, shards: Mapping[int, QueueFigures] | None) -> Iterator[Metric]:
        yield _family(BUILD, {this_build(): 1})
        yield from self._counted.collect()
        if self._alone:
            yield from ProcessCollector(registry=None).collect()
        yield _family(ENGINE_UP, {(name,): float(up) for name, up in self._engines.servers().items()})
        loads = self._engines.loads()
        yield _family(ENGINE_TOKENS, {(name,): load.tokens for name, load in loads.items()})
        yield _family(ENGINE_ROOM, {(name,): load.room for name, load in loads.items() if load.room})
        yield _family(ENGINE_WAITING, {(): self._engines.waiting})
        for about in (LIMIT, LIMIT_BYTES):
            yield _family(
                about, {(name,): most for name, most in self._limits.items() if name in about.labels["setting"]}
            )
        yield _family(STORE_UP, {(): float(shards is not None)})
        if shards is not None:
            yield from _of_shards(shards)

    async def _shards(self) -> Mapping[int, QueueFigures] | None:
        """The shards' queues, or None if they can't be read now."""
        try:
            async with asyncio.timeout(self._store_seconds):
                return await self._read_shards()
        except (StoreError, TimeoutError) as error:
            logs.event(logger, logging.WARNING, "a scrape lacks some shards", reason=str(error) or "too slow")
            return None


def limits_of(settings: CoreSettings) -> dict[str, float]:
    found = {name: getattr(settings, name) for name in (*SHARD_COUNTS, *SHARD_BYTES)} | {
        "max_webhooks_pending": JobLimits().pending,
        "max_concurrent_requests": settings.workers * settings.max_concurrent_requests,
        "max_queued_requests": settings.workers * MAX_QUEUED_REQUESTS,
        "max_followers": settings.workers * MAX_FOLLOWERS,
        "max_sockets": settings.workers * MAX_SOCKETS,
    }
    return {name: limit for name, limit in found.items() if limit}


class _One:
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _of_shards(shards: Mapping[int, QueueFigures]) -> Iterator[Metric]:
    yield _family(
        QUEUED,
        {
            (str(number), level): queued
            for number, shard in shards.items()
            for level, queued in zip(LEVELS, shard.waiting, strict=True)
        },
    )
    for name, gauge in SHARD_GAUGES.items():
        yield _family(gauge, {(str(number),): getattr(shard, name) for number, shard in shards.items()})


def _family(gauge: Description, rows: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(gauge.name, gauge.tells, labels=tuple(gauge.labels))
    for labels, value in rows.items():
        family.add_metric(labels, value)
    return family


SHARDS_AT_ONCE = 16
"""How many shards are read at the same time for a scrape, of which there may be 256."""


async def read_shards(jobs: Jobs) -> dict[int, QueueFigures]:
    """Each shard's queue, for metrics. Raises StoreError."""
    numbers = range(jobs.shards)
    left, found = iter(numbers), dict[int, QueueFigures]()

    async def read() -> None:
        for shard in left:
            found[shard] = await jobs.queue(shard)

    readers = [asyncio.create_task(read()) for _ in numbers[:SHARDS_AT_ONCE]]
    try:
        await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return {shard: found[shard] for shard in numbers}
