"""An adapter connected to stand-ins for servers, and generations to ask of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from service.engine.port import EngineError, Generation, ModelCard, Sampling
from service.engine.servers.engine import Access
from service.harmony.tokens import RETURN, STOPS
from service.ssrf import LookUp, look_up
from tests.support.engine.generating import generated
from tests.support.engine.hooks import Sampled, complete
from tests.support.engine.scripted import ScriptedEngine, ScriptSource
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.standing import Standing
from tests.support.engine.watched import WatchedHttp

CARD = ModelCard("talker", 0, 4096)
SAID = [[5, 6], [7, RETURN]]
"""A short script."""

NEVER_SECONDS = 300.0
"""How often servers are asked how they are where a test wants none of that."""


def scripted(*scripts: ScriptSource) -> ScriptedEngine:
    return ScriptedEngine(CARD, *(scripts or (SAID,)))


def access_to(urls: Sequence[str], **access: Any) -> Access:
    """The access to servers there, which are asked nothing but what a test has asked of them."""
    return Access(tuple(urls), **{"probe_seconds": NEVER_SECONDS, "connect_seconds": 20, **access})


@asynccontextmanager
async def connected(
    *servers: Standing,
    model: str = "",
    context_tokens: int = 0,
    urls: Sequence[str] = (),
    look_up: LookUp = look_up,
    **access: Any,
) -> AsyncIterator[WatchedHttp]:
    """A started engine before these servers, until the end of the block; `urls` are where it is told that they are."""
    told = access_to(urls or [server.url for server in servers], **access)
    engine = WatchedHttp(servers[0].kind, told, model=model, context_tokens=context_tokens, look_up=look_up)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def generation(**fields: Any) -> Generation:
    """A short one, and what is special about it."""
    return Generation(**{"id": "resp_1", "prompt": [1, 2, 3], "sampling": Sampling(100, stop_ids=STOPS), **fields})


async def ask(engine: WatchedHttp, **fields: Any) -> Sampled:
    """Run a short generation to its end."""
    async with asyncio.timeout(20):
        return await complete(engine, generation(**fields))


async def failure(engine: WatchedHttp, **fields: Any) -> EngineError:
    """What a short generation fails with."""
    try:
        await ask(engine, **fields)
    except EngineError as error:
        return error
    raise AssertionError("it did not fail")


async def hold(engine: WatchedHttp, **fields: Any) -> "asyncio.Task[Sampled]":
    """A task with a generation that has begun, by what its server sent first."""
    begun = asyncio.Event()

    async def follow() -> Sampled:
        chunks = []
        async for chunk in generated(engine, generation(**fields)):
            chunks.append(chunk)
            begun.set()
        return Sampled([token for chunk in chunks for token in chunk.tokens], chunks[-1].finish, chunks)

    task = asyncio.create_task(follow())
    async with asyncio.timeout(5):
        await begun.wait()
    return task


@asynccontextmanager
async def several(*scripts: ScriptSource) -> AsyncIterator[list[Standin]]:
    """A stand-in for a vLLM server for each script."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(standing_in(scripted(script))) for script in scripts]
