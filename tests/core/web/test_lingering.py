"""A refusal is read by clients that send all of a body before they read, within bounds, and nobody waits for them."""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest

from service.process import Settings, load_settings
from service.web.http_protocol import LINGER_BYTES
from tests.support.service.inside import serving
from tests.support.service.process import ACME_KEY
from tests.support.service.sending import PIECE, SECONDS, send_all_then_read

LARGE = 20_000_000
HEAD = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(PIECE), PIECE)


@pytest.mark.parametrize("size", [8 * 1024 * 1024 + 1, LARGE])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "also", "status"),
    [
        ("/v1/responses", {}, 413),
        ("/v1/messages", {}, 404),
        ("/v1/responses", {"content-type": "text/plain"}, 415),
        ("/v1/responses", {"authorization": "Bearer sk-nobodys-0123456789"}, 401),
    ],
)
async def test_who_sends_all_of_a_body_before_it_reads_has_its_refusal(
    settings: Settings, size: int, chunked: bool, path: str, also: dict[str, str], status: int
) -> None:
    length = {} if chunked else {"content-length": str(size)}
    if status == 401:
        settings = load_settings(redis_url=settings.redis_url, api_keys=f"acme:{ACME_KEY}")
    async with serving(settings) as inside:
        told = await asyncio.to_thread(send_all_then_read, inside.url, size, path, also | length)
    assert told[0] == status
    assert told[1]


async def test_nobody_s_body_is_dropped_without_end(settings: Settings) -> None:
    async with serving(settings) as inside:
        sent = await asyncio.to_thread(send_endlessly, inside.url)
        assert LINGER_BYTES / 2 < sent < 2 * LINGER_BYTES
        told = await asyncio.to_thread(send_all_then_read, inside.url, LARGE, "/v1/responses", {})
    assert told[0] == 413


def send_endlessly(url: str) -> int:
    """Send chunks until the connection breaks; how many bytes."""
    sent = 0
    with connected(url) as raw:
        raw.sendall(CHUNKED)
        try:
            while sent < 4 * LINGER_BYTES:
                raw.sendall(CHUNK)
                sent += len(CHUNK)
        except ConnectionError:
            pass
    return sent


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname or "", address.port or 0), timeout=SECONDS)
