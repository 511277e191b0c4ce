"""Nobody waits for somebody else's large frame: its kind, its lane and what is wrong with it are found in no time."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from service.errors import InvalidRequest
from service.features.sockets.frames import read_envelope
from service.process import Settings
from tests.support.bad.frames import TEXT, raw
from tests.support.bad.table import LIMIT
from tests.support.service.inside import serving
from tests.support.service.lag import STALL_SECONDS, longest_work
from tests.support.service.sockets import SECONDS, UPGRADE

ATTEMPTS = 5
PASSES = 1.5
"""A frame is read once in a turn of the loop, and never twice."""

LAST = b'{"type":"last"}'


def full(before: bytes, unit: bytes, after: bytes) -> bytes:
    """A frame as large as it may be, most of which is `unit` again and again."""
    return before + unit * ((LIMIT - len(before) - len(after)) // len(unit)) + after


FRAMES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a list for its lane": (
        lambda: full(b'{"type":"response.create","stream_id":[', b"1,", b"1]}"),
        "invalid_stream_id",
    ),
    "as many lanes as fit": (lambda: full(b"{", b'"stream_id":1,', b'"type":1}'), "invalid_type"),
    "a list for an id": (lambda: full(b'{"type":"response.cancel","response_id":[', b"1,", b"1]}"), "invalid_value"),
    "a fault behind a long list": (lambda: full(b'{"type":"response.create","input":[', b"1,", b"1]"), "invalid_json"),
}


@pytest.mark.parametrize("name", FRAMES)
async def test_the_loop_never_works_for_long_on_a_frame(settings: Settings, name: str) -> None:
    made, code = FRAMES[name]
    frames = UPGRADE + raw(TEXT, made()) + raw(TEXT, LAST)

    def send(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
            client.sendall(frames)
            received = b""
            while b"'last'" not in received:
                received += client.recv(65_536)
        return received

    tried: list[tuple[float, float]] = []
    async with serving(settings) as inside:
        for _ in range(ATTEMPTS):
            answer = asyncio.get_running_loop().run_in_executor(None, send, inside.port)
            tried.append((await longest_work(answer), one_pass(made())))
            assert f'"code":"{code}"'.encode() in answer.result()
    assert any(worst < max(STALL_SECONDS, PASSES * passed) for worst, passed in tried), tried


def one_pass(frame: bytes) -> float:
    """The processor time of reading a frame once, in seconds, on this machine at this moment."""
    began = time.thread_time()
    with suppress(InvalidRequest):
        read_envelope(frame)
    return time.thread_time() - began
