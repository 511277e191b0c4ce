"""What every request needs: the service with its parts, on whose behalf a request is made, and work in steps."""

import asyncio
from collections.abc import Callable
from time import time
from typing import TypeVar

import msgspec

from service.engine.port import Engine
from service.metrics.counters import Metrics
from service.responses.read import Limits
from service.responses.seal import Seals
from service.responses.templates import Templates
from service.settings.settings import Settings
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog
from store.redis.listening import Listening

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
    cancel_slots: asyncio.Semaphore
    """How many cancelled responses may be closed at once, each of which replays its log."""
    clock: Callable[[], float] = time


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made: the tenant, and the W3C trace headers that came with it."""

    tenant: str
    trace: tuple[tuple[str, str], ...] = ()
