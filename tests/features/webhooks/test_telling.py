"""The service tells a receiver how each background response ended, as soon as that can be retrieved."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
from openai import AsyncOpenAI

from service.features.webhooks.deliver import event_body
from store.jobs.outbox import Webhook
from tests.support.documents import blocks, read, shows
from tests.support.ports import free_port
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import until
from tests.support.webhooks.desk import SECRET, TENANT, Desk, unwrapped
from tests.support.webhooks.inbox import Inbox, inbox

SLOWLY = 20
DEADLINE_SECONDS = 20


@pytest.fixture(scope="module")
def port() -> int:
    """The port at which the service finds a receiver, when a test has one."""
    return free_port()


@pytest.fixture(scope="module")
def teller(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that is not fast, and tells that receiver."""
    process = ServiceProcess(
        tmp_path_factory.mktemp("teller"),
        webhook_url=f"private+http://127.0.0.1:{port}/hook",
        webhook_secret=SECRET,
        demo_tokens_per_second=SLOWLY,
    )
    yield process
    process.stop()


@pytest.fixture
async def client(teller: ServiceProcess) -> AsyncIterator[AsyncOpenAI]:
    async with teller.async_client() as client:
        yield client


@pytest.fixture
async def box(port: int) -> AsyncIterator[Inbox]:
    async with inbox(port=port) as box:
        yield box


def heard(box: Inbox, id: str) -> list[str]:
    """The types of the events about a response that have come so far."""
    events = [unwrapped(letter) for letter in box.letters]
    return [event.type for event in events if event.data.id == id]


async def test_an_end_that_is_told_can_be_retrieved_and_a_foreground_response_is_not_told_of(
    box: Inbox, client: AsyncOpenAI
) -> None:
    answered = await client.responses.create(model=MODEL, input="Count to 3.")
    asked = await client.responses.create(model=MODEL, input="Tell me.", max_output_tokens=16, background=True)
    await until(lambda: heard(box, asked.id), DEADLINE_SECONDS)
    assert (heard(box, asked.id), heard(box, answered.id)) == (["response.incomplete"], [])
    assert (await client.responses.retrieve(asked.id)).status == "incomplete"


# --- the receiver that docs/events.md shows, run as it stands on a free port ---

DOCUMENT = "docs/events.md"
ADDRESS = ("127.0.0.1", 9000)


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
    address = ("127.0.0.1", port)
    await until(lambda: socket.create_connection(address).close() or True, DEADLINE_SECONDS, passing=OSError)
    yield f"http://127.0.0.1:{port}/", process
    process.kill()
    await process.wait()


async def test_the_receiver_shown_prints_what_it_is_told_and_refuses_what_another_has_signed(
    desk: Desk, receiver: tuple[str, asyncio.subprocess.Process]
) -> None:
    url, process = receiver
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
