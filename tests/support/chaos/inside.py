"""A worker in the test's own loop, over a demo engine that tells what it is at work on, and responses for it.

For what can't be seen from outside: the moment at which a generation is gone. All else of it is a worker as any other.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from service.api.events import Event
from service.api.request import CreateRequest, Window, read_create
from service.api.response import Message, Response
from service.background.follow import Following
from service.background.tasks import Background
from service.background.timing import TIMING, Timing
from service.engine.port import Between, Engine, Generation, ModelCard, Take
from service.entrance import Entry
from service.features.demo.engine import DemoEngine
from service.process import DEMO_CONTEXT_TOKENS, Settings, close_service, open_service
from service.responses.service import Caller, Service
from service.settings.core import DEFAULT_TENANT
from service.settings.engines import DEMO_MODEL
from tests.support.service.making import make_response, queue_response

CARD = ModelCard(DEMO_MODEL, 0, DEMO_CONTEXT_TOKENS)
CALLER = Caller(Entry(DEFAULT_TENANT))
ID_CHARS = len("resp_") + 48


class WatchedEngine(DemoEngine):
    """Notes for whom it samples, and when it last stopped to."""

    def __init__(self, tokens_per_second: float) -> None:
        super().__init__(CARD, tokens_per_second)
        self.sampling: Counter[str] = Counter()
        """How many generations of each response are under way."""
        self.asked: Counter[str] = Counter()
        """How many there were."""
        self.priorities: dict[str, int] = {}
        """The priority of the last one of each."""
        self.stopped: dict[str, float] = {}
        """When the last one of each ended, on the monotonic clock."""

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        id = generation.id[:ID_CHARS]
        self.sampling[id] += 1
        self.asked[id] += 1
        self.priorities[id] = generation.priority
        try:
            await super().sample(generation, take, between)
        finally:
            self.sampling[id] -= 1
            self.stopped[id] = time.monotonic()


@asynccontextmanager
async def opened(settings: Settings, engine: Engine | None = None) -> AsyncIterator[Service]:
    """What a process has that doesn't work."""
    service = open_service(settings, engine or WatchedEngine(1))
    try:
        yield service
    finally:
        await close_service(service)


@asynccontextmanager
async def working(settings: Settings, engine: Engine, timing: Timing = TIMING) -> AsyncIterator[Background]:
    """A worker, until the end of the block."""
    async with opened(settings, engine) as service, at_work(service, timing) as background:
        yield background


@asynccontextmanager
async def at_work(service: Service, timing: Timing = TIMING) -> AsyncIterator[Background]:
    """A worker over what its process has, until the end of the block."""
    await service.engine.start()
    background = Background(service, works=True, timing=timing)
    work = asyncio.create_task(background.run())
    try:
        yield background
    finally:
        background.stop()
        await work


async def queue(
    service: Service,
    said: object,
    conversation: str | None = None,
    tools: Sequence[object] = (),
    after: str | None = None,
    window: Window = "soonest",
) -> str:
    """Queue a response to what is said, a text or items, perhaps in a conversation or after another response, perhaps
    with tools or hours; its id.
    """
    request = _asked(said, conversation, tools, after, background=True)
    return await queue_response(service, CALLER, msgspec.structs.replace(request, window=window))


async def respond(service: Service, said: str, conversation: str) -> Response:
    """The response to what is said in a conversation, in the foreground."""
    return await make_response(service, CALLER, _asked(said, conversation, (), None, background=False))


def _asked(
    said: object, conversation: str | None, tools: Sequence[object], after: str | None, *, background: bool
) -> CreateRequest:
    body: dict[str, object] = {"model": DEMO_MODEL, "input": said, "background": background, "stream": True}
    body["tools"] = tools
    if after is not None:
        body["previous_response_id"] = after
    if conversation is not None:
        body["conversation"] = conversation
    return read_create(json.dumps(body).encode(), store=True)


async def follow(service: Service, id: str, seen: list[Event]) -> None:
    """Follow a response to its end, each event once and in order."""
    async for batch in Following(service.jobs.log, service.store.listening, DEFAULT_TENANT, id).events():
        for event in batch:
            assert event.sequence_number == len(seen)
            seen.append(event)


def answer(response: Response) -> str:
    message = response.output[-1]
    assert isinstance(message, Message)
    return message.content[0].text


def counted(last: int) -> str:
    """What the demo engine says when it counts so far."""
    return "\n".join(map(str, range(1, last + 1)))
