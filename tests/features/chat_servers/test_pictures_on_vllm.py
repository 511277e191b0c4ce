"""Pictures on a real vLLM, which makes the prompts of a toy with a real vision encoder.

Its answers are random; the tests are about how it reads each picture, and where its prefix cache holds.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import ServerKind
from service.engine.vllm.servers import Vllm
from service.features.chat_servers.servers import VllmByChat
from service.features.models.speech import Disarming
from service.process import Settings, load_settings
from tests.support.chaos.storm import QUICK
from tests.support.oracles.event_grammar import check_stream
from tests.support.pictures import png, said
from tests.support.service.inside import serving
from tests.support.service.process import WorkerProcess
from tests.support.vllm.fixtures import FINE_CACHE, TEST_SECONDS, served
from tests.support.vllm.server import SEEING

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(TEST_SECONDS)]

CAT, DOG = png(grey=10), png(grey=200)
PICTURE_TOKENS = 19
"""Of 16 patches and three marks."""
BLOCK = 32
LONG = "a picture " * 10


@pytest.fixture(scope="module")
def seeing_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server of a toy that is shown pictures."""
    room = ("--max-model-len", "65536", "--max-num-batched-tokens", "65536")
    yield from served(tmp_path_factory.mktemp("seeing"), SEEING, *FINE_CACHE[:2], *room)


@pytest.fixture(params=[VllmByChat, partial(Vllm, Disarming())], ids=["by messages", "by ids"])
def kind(request: pytest.FixtureRequest) -> ServerKind:
    """How the server is asked: for a prompt of its own, or by ids and the pictures beside them."""
    return request.param()


@asynccontextmanager
async def asked(settings: Settings, kind: ServerKind, url: str, **more: Any) -> AsyncIterator[AsyncOpenAI]:
    engine = ServersEngine(kind, Access((url,)))
    async with serving(settings.model_copy(update=more), engine) as service, service.client() as client:
        yield client


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, **more: Any) -> Any:
    options = {"temperature": 0, "max_output_tokens": 16, "previous_response_id": after and after.id} | more
    return await client.responses.create(model=SEEING, input=words, **options)


async def test_a_server_says_that_its_model_sees_and_reads_each_picture(
    settings: Settings, kind: ServerKind, seeing_url: str
) -> None:
    async with asked(settings, kind, seeing_url) as client:
        model = (await client.models.list()).data[0].to_dict()
        assert model["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
        blind, one, two = [await ask(client, said("Look", *shown)) for shown in ((), (CAT,), (CAT, DOG))]
    counts = [each.usage.input_tokens for each in (blind, one, two)]
    assert [count - counts[0] for count in counts] == [0, PICTURE_TOKENS, 2 * PICTURE_TOKENS]
    assert {each.status for each in (blind, one, two)} <= {"completed", "incomplete"}


async def test_a_continuation_behind_a_picture_hits_the_prefix_cache_and_another_picture_does_not(
    settings: Settings, kind: ServerKind, seeing_url: str
) -> None:
    async with asked(settings, kind, seeing_url) as client:
        first = await ask(client, said(CAT, LONG))
        again = await ask(client, "And?", first)
        fork = await ask(client, "Or?", first)
        other = await ask(client, said(DOG, LONG))
    read = first.usage.input_tokens // BLOCK * BLOCK
    assert again.usage.input_tokens_details.cached_tokens >= read > PICTURE_TOKENS
    assert fork.usage.input_tokens_details.cached_tokens >= read
    assert other.usage.input_tokens_details.cached_tokens < PICTURE_TOKENS, "it is the picture that differs"


async def test_killed_amid_an_answer_about_a_picture_a_worker_s_heir_goes_on_at_the_token(
    settings: Settings, seeing_url: str, tmp_path: Path
) -> None:
    stored = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
    given = QUICK | stored | {"engine": "vllm", "engine_url": seeing_url}
    words, long, events = said(CAT, "Tell me of it"), {"max_output_tokens": 400}, list[Any]()
    async with serving(load_settings(**given, embedded_worker=False)) as service, service.client() as client:
        whole = await ask(client, words, **long)
        stream = await ask(client, words, background=True, stream=True, **long)
        first = await asyncio.to_thread(WorkerProcess, tmp_path / "first", **given)
        heir: WorkerProcess | None = None
        async for event in stream:
            events.append(event.to_dict())
            if event.type == "response.output_text.delta" and heir is None:
                first.kill()
                heir = await asyncio.to_thread(WorkerProcess, tmp_path / "heir", **given)
        assert heir is not None
        await asyncio.to_thread(heir.stop)
    assert "outcome=ended" in heir.log, "the first was killed too late"
    response = check_stream(events)
    assert response["output"][0]["content"][0]["text"] == whole.output_text
    counted = ("input_tokens", "output_tokens")
    assert [response["usage"][each] for each in counted] == [getattr(whole.usage, each) for each in counted]
