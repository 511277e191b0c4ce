"""What clients send never takes much of a process's memory, however many send it at once, and it comes back."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from service.process import Settings
from tests.support.engine.scripted import Stall
from tests.support.pictures import png, said
from tests.support.service.inside import opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import until

MIB = 1 << 20
SECONDS = 60.0
POLL_SECONDS = 0.02
MOST_ADDED, MOST_KEPT = 180 * MIB, 24 * MIB
"""The most bytes that an attack may add to those at rest, and the most that a process may keep of them. Large texts add
some 135 MiB, all of them together would add 500. 4 to 9 are kept, and 30 or more where glibc holds large blocks back.
"""

FLOOD = 12
Attack = Callable[[ServiceProcess], Awaitable[None]]


@asynccontextmanager
async def watched(service: ServiceProcess, most: list[int]) -> AsyncIterator[None]:
    """Notes the most bytes that it has in memory."""

    async def watch() -> None:
        while True:
            most[0] = max(most[0], service.memory_bytes())
            await asyncio.sleep(POLL_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def many_large_texts(service: ServiceProcess) -> None:
    """Texts of as many tokens as 8 MB can have, which are cut to the model's context."""
    body = b'{"model":"%s","truncation":"auto","input":"%s"}' % (
        MODEL.encode(),
        (b"x y z q k j v w " * 524_000)[: 8 * MIB - 500],
    )
    async with httpx.AsyncClient(base_url=service.url, timeout=SECONDS, trust_env=False) as http:

        async def send() -> int:
            answer = await http.post(
                "/v1/responses/input_tokens", content=body, headers={"content-type": "application/json"}
            )
            return answer.status_code

        statuses = await asyncio.gather(*(send() for _ in range(FLOOD)))
    assert set(statuses) <= {200, 400, 503}


async def many_requests_ahead(service: ServiceProcess) -> None:
    """A quarter of a megabyte of tiny requests on each of forty connections."""
    one = b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(40):
        connections.append(await asyncio.open_connection("127.0.0.1", service.port))
        connections[-1][1].write(one * (256 * 1024 // len(one)))
    for reader, writer in connections:
        with suppress(ConnectionError):  # it hangs up on what it doesn't read
            await reader.read()
        writer.close()


async def many_slow_readers(service: ServiceProcess) -> None:
    """Eight megabytes of a stored response for each of sixty clients, who read nothing."""
    sent = said(*(png(comment=filling * (3 * MIB - 1000)) for filling in (b"a", b"b")))
    made = service.client().responses.create(model=MODEL, input=sent, timeout=SECONDS)  # type: ignore[arg-type]
    writers: list[asyncio.StreamWriter] = []
    for _ in range(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1024)
        writer.write(f"GET /v1/responses/{made.id}/input_items HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await reader.readline() in (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Service Unavailable\r\n")
        writers.append(writer)
    for writer in writers:
        writer.transport.abort()


@pytest.mark.parametrize(
    "attack", [many_large_texts, many_requests_ahead, many_slow_readers], ids=lambda attack: attack.__name__
)
async def test_memory_stays_bounded_and_comes_back(service: ServiceProcess, attack: Attack) -> None:
    service.client().responses.create(model=MODEL, input="hi")
    rest = service.memory_bytes()
    most = [rest]
    async with watched(service, most):
        await attack(service)
    print(f"{attack.__name__}: {rest // MIB} MiB, {most[0] // MIB} at most, {service.memory_bytes() // MIB} at the end")
    assert most[0] < rest + MOST_ADDED
    await until(lambda: service.memory_bytes() < rest + MOST_KEPT, SECONDS)


async def test_a_run_holds_no_body(settings: Settings) -> None:
    """A run may take minutes, and a body megabytes; what nobody reads in it is nowhere else."""
    await check_run(settings, "/v1/responses", "input")


async def check_run(settings: Settings, path: str, member: str) -> None:
    said = [{"role": "user", "content": [{"type": "text", "text": "hi", "unread": "x" * (4 * MIB)}]}]
    sent = json.dumps({"model": MODEL, member: said}).encode()
    engine = scripted([opened("Ahoy"), Stall()])
    async with serving(settings, engine) as inside, inside.http() as http:
        tracemalloc.start()
        try:
            asking = asyncio.create_task(http.post(path, content=sent, headers={"content-type": "application/json"}))
            await until(lambda: engine.generations)
            await until(lambda: tracemalloc.get_traced_memory()[0] < MIB)
            assert not asking.done()
        finally:
            tracemalloc.stop()
        asking.cancel()
