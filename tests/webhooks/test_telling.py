"""The service tells a receiver how each background response ended, as soon as that can be retrieved."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.support.ports import free_port
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import until
from tests.support.webhooks.desk import SECRET, unwrapped
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
