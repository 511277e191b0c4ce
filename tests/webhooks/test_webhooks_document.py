"""The receiver that docs/events.md shows, run as it stands on a free port: it takes what is signed, and no more."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest

from service.webhooks import event_body
from store.jobs.outbox import Webhook
from tests.support.documents import blocks, read, shows
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.webhooks.desk import SECRET, TENANT, Desk

DOCUMENT = "docs/events.md"
ADDRESS = ("127.0.0.1", 9000)
DEADLINE_SECONDS = 20


def shown(label: str) -> str:
    (text,) = [each.text for each in blocks(read(DOCUMENT)) if each.label == label]
    return text


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Where the example listens, and the process that it is."""
    port = free_port()
    code = shown("python").replace(repr(ADDRESS).replace("'", '"'), f'("127.0.0.1", {port})')
    environment = os.environ | {"OPENAI_WEBHOOK_SECRET": SECRET}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    yield f"http://127.0.0.1:{port}/", process
    process.kill()
    await process.wait()


def listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.split(":")[2].rstrip("/")))) == 0


async def test_the_receiver_shown_prints_what_it_is_told_and_refuses_what_another_has_signed(
    desk: Desk, receiver: tuple[str, asyncio.subprocess.Process]
) -> None:
    url, process = receiver
    await until(lambda: listens(url), DEADLINE_SECONDS)
    id = await desk.end()
    async with desk.delivering(url) as delivering:
        await delivering.settled()
    await desk.end()
    async with desk.delivering(url, webhook_secret="whsec_" + "A" * 32) as forging:
        await forging.settled()
    assert (forging.delivered, delivering.delivered) == (0, 1)
    assert process.stdout is not None
    assert await process.stdout.readline() == f"response.completed {id}\n".encode()


def test_the_body_shown_is_one_that_is_sent() -> None:
    body = event_body(Webhook(TENANT, "resp_" + 48 * "0", "completed", 1795132800, 1))
    assert shows(shown("json"), body.decode())
    assert list(msgspec.json.decode(body)) == ["id", "object", "created_at", "type", "data"]
