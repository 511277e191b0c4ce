"""Many WebSockets of every kind for a while: afterwards a service has all that it had, and all that completed."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from service.settings.settings import Settings
from tests.support.lengths import lengths
from tests.support.service.inside import serving
from tests.support.service.process import ServiceProcess
from tests.support.service.scraped import Scraped
from tests.support.service.soak import SEND_SECONDS, Soak
from tests.support.service.sockets import socket
from tests.support.waiting import until

KIB = 1024
CLIENTS = 16
LIMITS: dict[str, Any] = {
    "max_concurrent_requests": 120,
    "queue_seconds": 0,
    "max_body_bytes": 512 * KIB,
    "send_seconds": SEND_SECONDS,
    "demo_tokens_per_second": 400,
    "store_cache_bytes": 0,
}
"""So little of everything that what isn't given back is missed."""

IN_FLIGHT = 16
"""How many responses one WebSocket may have under way."""

GROWTH = 1.3
"""How much more memory than after a first while may be in use after the rest."""

SECONDS = 30.0

LENGTHY = "Count to 5000."
"""Half a minute of an answer: it is under way until all others have been asked for."""


async def at_rest(url: str) -> None:
    """Wait until nothing is open or under way."""

    async def counted() -> tuple[float, float]:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            scraped = Scraped((await http.get("/metrics")).text)
        return scraped.value("harmonium_sockets"), scraped.value("harmonium_requests_in_progress")

    await until(counted, SECONDS, "not at rest", wanted=lambda found: found == (0, 0))


async def check_places(url: str) -> None:
    """There are as many places for WebSockets, and for what they ask for, as ever; and as much room for frames."""
    async with AsyncExitStack() as stack:
        asked = LIMITS["max_concurrent_requests"]
        opened = [await stack.enter_async_context(socket(url)) for _ in range(asked // IN_FLIGHT + 2)]
        for number in range(asked):
            await opened[number // IN_FLIGHT].ask(LENGTHY, stream_id=str(number % IN_FLIGHT), store=False)
        for ws in opened[: -(-asked // IN_FLIGHT)]:
            lanes = min(IN_FLIGHT, asked)
            asked -= lanes
            created: set[str] = set()
            while len(created) < lanes:
                frame = await ws.next()
                assert frame["type"] != "error", frame
                created.add(frame["stream_id"])
        await opened[-1].ask(LENGTHY)
        assert (await opened[-1].next())["status"] == 503
        for ws in opened:
            ws.connection.transport.abort()
    await at_rest(url)
    async with socket(url) as ws:
        large = {"type": "response.create", "input": 5, "padding": "x" * (LIMITS["max_body_bytes"] - 4 * KIB)}
        assert (await ws.refusal(json.dumps(large)))["status"] == 400


async def check_responses(url: str, ids: set[str]) -> None:
    """Everything that completed can be read."""
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=SECONDS) as http:
        for id in ids:
            answer = await http.get(f"/v1/responses/{id}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["status"] == "completed"


@pytest.mark.parametrize("seconds", lengths(3, 240))
async def test_a_soak_leaves_memory_places_and_connections_as_they_were(
    start: Callable[..., ServiceProcess], seconds: float
) -> None:
    service = start(**LIMITS)
    soak = Soak(service.url, seed=5)
    await soak.run(seconds / 2, CLIENTS)
    await at_rest(service.url)
    rest = service.memory_bytes()
    await soak.run(seconds / 2, CLIENTS)
    await at_rest(service.url)
    assert soak.missing == set()
    await until(lambda: service.memory_bytes() < GROWTH * rest, SECONDS)
    await until(lambda: service.connections() == 0, SECONDS)
    await check_responses(service.url, soak.completed)
    await check_places(service.url)
    assert "Traceback" not in service.log
    print(f"{sum(soak.ended.values())} WebSockets, {len(soak.completed)} responses, {dict(soak.ended)}")
    print(f"{soak.turned_away} turned away")


async def test_a_soak_leaves_no_task(settings: Settings) -> None:
    async with serving(settings.model_copy(update=LIMITS)) as inside:
        await at_rest(inside.url)
        before = asyncio.all_tasks()
        soak = Soak(inside.url, seed=6)
        await soak.run(1.5, CLIENTS)
        await at_rest(inside.url)
        await until(lambda: asyncio.all_tasks() <= before, SECONDS, "tasks are left")
        await check_responses(inside.url, soak.completed)
