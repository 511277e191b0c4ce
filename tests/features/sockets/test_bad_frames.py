"""Bad frames: each is refused by name and leaves the WebSocket open; bytes that are no frames end it with a code."""

import asyncio
import base64
import json
import socket as sockets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from websockets.sync.client import ClientConnection, connect

from service.settings import core
from tests.support.bad.frames import ASKED, BODIES, ENDING, FRAMES, TEXT, BadFrame, raw
from tests.support.bad.table import LIMIT
from tests.support.service.process import ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.service.sockets import UPGRADE
from tests.support.waiting import wait_until

SECONDS = 20


@contextmanager
def opened(service: ServiceProcess) -> Iterator[ClientConnection]:
    address = service.url.replace("http", "ws", 1) + "/v1/responses"
    with connect(address, compression=None, max_size=None, proxy=None, ping_interval=None) as ws:
        yield ws


@pytest.fixture(scope="module")
def ws(service: ServiceProcess) -> Iterator[ClientConnection]:
    """One WebSocket for all that leaves it open."""
    with opened(service) as ws:
        yield ws


def check(ws: ClientConnection, bad: BadFrame) -> None:
    ws.send(bad.frame)
    told = json.loads(ws.recv(timeout=SECONDS))
    assert told["type"] == "error", (bad, told)
    error = told["error"]
    assert error.keys() == {"type", "code", "message", "param", "headers"}
    assert (told["status"], error["type"]) == (bad.status, "invalid_request_error"), error
    assert (error["code"], error["param"]) == (bad.code, bad.param), error
    assert bad.words in error["message"], (bad, error)
    assert len(error["message"]) < 1000


def test_a_bad_frame_is_refused_by_name(ws: ClientConnection) -> None:
    for bad in FRAMES.values():
        check(ws, bad)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.full)])
def test_what_is_a_bad_body_over_http_is_a_bad_frame(ws: ClientConnection, step: int) -> None:
    for bad in list(BODIES.values())[::step]:
        check(ws, bad)


class Raw:
    """A WebSocket by hand, for what no library sends."""

    def __init__(self, service: ServiceProcess) -> None:
        self.connection = sockets.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
        self.connection.sendall(UPGRADE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.connection.recv(1)

    def sent(self, data: bytes) -> bytes:
        """All that comes until the connection is closed."""
        with suppress(OSError):
            self.connection.sendall(data)
        return self.rest()

    def rest(self) -> bytes:
        """All that comes until the connection is closed."""
        received = b""
        with suppress(ConnectionResetError), self.connection:
            while piece := self.connection.recv(65_536):
                received += piece
        return received


@pytest.mark.parametrize("name", ENDING)
def test_what_is_no_frame_ends_the_connection_with_its_code(service: ServiceProcess, name: str) -> None:
    made, code = ENDING[name]
    before = service.memory_bytes()
    received = Raw(service).sent(made())
    if received:  # a connection that is reset with much unread may lose what was sent last
        assert b"\x88" in received
        at = received.rindex(b"\x88")
        assert int.from_bytes(received[at + 2 : at + 4], "big") == code
    else:
        assert len(made()) > 100_000
    assert service.memory_bytes() - before < 100 << 20
    assert service.http().get("/ready").status_code == 200


def open_sockets(service: ServiceProcess) -> float:
    return scraped(service.http()).value("harmonium_sockets")


def test_a_client_that_closes_its_side_is_gone(service: ServiceProcess) -> None:
    before = open_sockets(service)
    client = Raw(service)
    client.connection.sendall(raw(TEXT, b'{"type":', fin=False))
    wait_until(lambda: open_sockets(service) == before + 1)
    client.connection.shutdown(sockets.SHUT_WR)
    wait_until(lambda: open_sockets(service) == before)
    assert client.rest() == b""


@pytest.mark.parametrize(
    "wrong",
    [
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": base64.b64encode(bytes(15)).decode()},
        {"Upgrade": "h2c"},
        {"Connection": "keep-alive"},
        {"Content-Length": "2"},
    ],
)
def test_an_upgrade_that_is_not_right_is_a_426_that_says_how(service: ServiceProcess, wrong: dict[str, str]) -> None:
    first, *lines = UPGRADE.decode().split("\r\n")[:-2]
    headers = dict(line.split(": ") for line in lines) | wrong
    body = "{}" if "Content-Length" in wrong else ""
    with sockets.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as connection:
        request = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items()), "", body])
        connection.sendall(request.encode())
        answer = connection.recv(65_536)
        while not answer.endswith(b"}}"):
            answer += connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"upgrade_required" in answer
    assert b"upgrade: websocket" in answer
    assert b"sec-websocket-version: 13" in answer
    assert b"x-request-id: req_" in answer


def test_the_beginnings_of_messages_without_an_end_take_room_as_whole_ones_do(service: ServiceProcess) -> None:
    before, beginning = open_sockets(service), raw(TEXT, bytes(LIMIT - 1), fin=False)
    with ExitStack() as stack:
        for _ in range(core.BODIES + 1):
            client = stack.enter_context(Raw(service).connection)
            with suppress(ConnectionError):
                client.sendall(beginning)
        wait_until(lambda: open_sockets(service) <= before + core.BODIES)


async def slowest_beside_a_flood(service: ServiceProcess) -> float:
    """The seconds that the slowest of many requests takes while frames come without end."""
    client = await asyncio.to_thread(Raw, service)

    def flood() -> None:
        client.connection.settimeout(0.5)
        with suppress(OSError):  # it isn't read from, as it reads nothing
            client.connection.sendall(raw(TEXT, b"x") * 100_000)

    flooding = asyncio.create_task(asyncio.to_thread(flood))
    loop, slowest = asyncio.get_running_loop(), 0.0
    while not flooding.done():
        began = loop.time()
        assert (await asyncio.to_thread(service.http().get, "/health")).status_code == 200
        slowest = max(slowest, loop.time() - began)
    await flooding
    client.connection.close()
    return slowest


async def test_a_flood_of_frames_leaves_the_loop_to_others(service: ServiceProcess) -> None:
    assert min([await slowest_beside_a_flood(service) for _ in range(3)]) < 1


def test_33_lanes_are_one_too_many_and_the_nameless_does_not_count(service: ServiceProcess) -> None:
    with opened(service) as ws:
        ws.send(json.dumps({**ASKED, "temperature": 9}))
        for lane in range(33):
            ws.send(json.dumps({**ASKED, "temperature": 9, "stream_id": f"lane-{lane}"}))
        told = [json.loads(ws.recv(timeout=SECONDS)) for _ in range(34)]
        codes = {each.get("stream_id"): each["error"]["code"] for each in told}
        assert codes.pop("lane-32") == "websocket_stream_limit_reached"
        assert set(codes.values()) == {"invalid_value"}
