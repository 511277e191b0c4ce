"""What every request needs: the service with its parts, on whose behalf a request is made, and work in steps."""

import asyncio
from collections.abc import Callable, Generator
from time import time
from typing import TypeVar

import msgspec

from service.engine.port import Engine
from service.metrics import Metrics
from service.protocol.reading import Limits
from service.sealing import Seals
from service.settings import Settings
from service.templates import Templates
from store.history import ConversationHistoryStore
from store.jobs import Jobs
from store.listening import Listening
from store.log import EventLog

BRIEFLY = 1e-6
"""Seconds."""

T = TypeVar("T")


class Service(msgspec.Struct, frozen=True):
    """What every request needs: the settings, the store with its jobs, the engine, and the limits of a prompt."""

    settings: Settings
    store: ConversationHistoryStore
    jobs: Jobs
    log: EventLog
    listening: Listening
    engine: Engine
    limits: Limits
    metrics: Metrics
    seals: Seals
    templates: Templates
    closings: asyncio.Semaphore
    """How many cancelled responses may be closed at once, each of which replays its log."""
    clock: Callable[[], float] = time


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made: the tenant, and the W3C trace headers that came with it."""

    tenant: str
    trace: tuple[tuple[str, str], ...] = ()


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, letting others run between its steps.

    A sleep of 0 would queue before the timers that are due by then; this short one queues behind them.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(BRIEFLY)
