"""Who waits for room where there are several servers: for the one that has its prefix cached, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.engine.servers.choosing import ALONE, APART, Choosing, Home
from tests.support.engine.connected import CARD, ask, connected, hold, scripted
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until

ROOM = 1000
LONG = [1] * 600

# --- how long it is worth it ------------------------------------------------------------------------------------------


def home_of(tokens: int) -> Any:
    """One that has so many tokens; which server it is nobody asks."""
    return Home(None, 0, tokens)  # type: ignore[arg-type]


def test_a_home_is_waited_for_as_long_as_computing_would_take() -> None:
    choosing = Choosing()
    for tokens in (100, 300, 900):
        choosing.note_computed(tokens, 0.5 + tokens / 1000)
    assert choosing.patience(home_of(4000), 30) == pytest.approx((4, 30 * APART))
    assert choosing.patience(home_of(9000), 30) == pytest.approx((9, 9))
    assert choosing.patience(home_of(90_000), 30) == pytest.approx((30 * ALONE, 30 * ALONE))
    assert choosing.patience(None, 30) == (0, 30 * APART)


# --- the same before servers ------------------------------------------------------------------------------------------


@asynccontextmanager
async def full(
    compute_seconds: float, waiting: int = 10
) -> AsyncIterator[tuple[WatchedHttp, Standin, Standin, list[Any]]]:
    """An engine before two servers with a long generation each, of which the first made the response "first"; and what
    ends these.
    """
    async with (
        standing_in(scripted(), room=ROOM) as one,
        standing_in(scripted(), room=ROOM) as two,
        connected(one, two, wait_seconds=60, waiting=waiting) as engine,
    ):
        one.compute_seconds = two.compute_seconds = compute_seconds
        await ask(engine, id="short")
        await ask(engine, id="first", prompt=LONG, response="first")
        home, other = (one, two) if "first" in asked(one) else (two, one)
        for server in (one, two):
            server.compute_seconds = 0
            server.engine = ScriptedEngine(CARD, [[5], Stall()])
        held = [await hold(engine, id="home", prompt=LONG, continues="first")]
        held.append(await hold(engine, id="other", prompt=[2] * 600))
        for server in (one, two):
            server.engine = scripted()
        yield engine, home, other, held
        for task in held:
            task.cancel()
        await asyncio.wait(held)


def continued(engine: WatchedHttp) -> "asyncio.Task[Any]":
    """One that goes on from the first response."""
    return asyncio.create_task(ask(engine, id="next", prompt=LONG, continues="first", response="next"))


def asked(server: Standin) -> list[str]:
    return [each.headers["x-request-id"] for each in server.generations]


async def test_a_conversation_waits_for_the_server_that_has_its_prefix() -> None:
    async with full(0.006) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        assert engine.waiting == 1
        held[0].cancel()
        await task
        assert asked(home)[-1] == "next"


async def test_who_waits_for_a_server_that_dies_goes_elsewhere() -> None:
    async with full(0.006) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        await home.die()
        await task
        assert asked(other)[-1] == "next"
