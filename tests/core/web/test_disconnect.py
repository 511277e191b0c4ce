"""Clients that go away or stop reading: the engine stops at once, and what was said by then is kept."""

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from service.engine.port import Generation
from service.process import Settings
from tests.support.engine.scripted import Stall, Step
from tests.support.service.beside import ServiceBeside
from tests.support.service.inside import Inside, opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess, raw_request
from tests.support.waiting import until, wait_until

STOP_SECONDS = 2.0
"""Within what the engine has stopped, on a busy machine too: long before a comment would meet the closed connection."""

BYTES_A_MB = 1 << 20


class Talk:
    """A script that says something and then falls silent; `silent` is set when it does."""

    def __init__(self) -> None:
        self.silent = asyncio.Event()

    def __call__(self, generation: Generation) -> Iterator[Step]:
        yield opened("Said so far.")
        self.silent.set()
        yield Stall()


async def stored(inside: Inside, id: str) -> dict[str, object]:
    async with inside.http() as http:
        answer = await until(
            lambda: http.get(f"/v1/responses/{id}"), 5, "not stored", wanted=lambda answer: answer.status_code != 404
        )
        return answer.json()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_stops_the_engine_and_what_was_said_is_kept(
    settings: Settings, stream: bool
) -> None:
    talk = Talk()
    engine = scripted(talk)
    async with serving(settings, engine) as inside:
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        writer.write(raw_request(stream=stream))
        await talk.silent.wait()
        writer.transport.abort()
        async with asyncio.timeout(STOP_SECONDS):
            await until(lambda: engine.running == 0)
        (id,) = engine.aborted
        response = await stored(inside, id)
        assert response["status"] == "cancelled"
        assert response["output"][-1]["content"][0]["text"] == "Said so far."  # type: ignore[index]
        assert response["output"][-1]["status"] == "incomplete"  # type: ignore[index]


def test_a_client_that_stops_reading_costs_no_memory_and_is_dropped(start: Callable[..., ServiceProcess]) -> None:
    service = start(send_seconds=1, keepalive_seconds=0.5)
    service.client().responses.create(model=MODEL, input="Count to 1000.")
    before = service.memory_bytes()
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", service.port))
        lazy.sendall(raw_request(stream=True, input="Count to 100000.", max_output_tokens=100_000))
        wait_until(lambda: "client=gone" in service.log, 10)
        assert service.memory_bytes() - before < 10 * BYTES_A_MB
        wait_until(lambda: service.connections() == 0, 5)
    assert "response_status=cancelled" in service.log
    assert "Traceback" not in service.log


def test_a_body_that_never_arrives_gives_its_place_back(beside: Callable[..., ServiceBeside]) -> None:
    service = beside(send_seconds=0.5, max_concurrent_requests=1)
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as slow:
        slow.sendall(raw_request()[:-10])
        answer = slow.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"x-should-retry: false" in answer
        assert slow.recv(1) == b""  # closed, and not only once its body is late again
    assert service.client().responses.create(model=MODEL, input="hi").status == "completed"
