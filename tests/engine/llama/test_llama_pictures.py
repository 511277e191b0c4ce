"""Pictures on a real llama.cpp, which makes the prompts of the talker and reads pictures by eyes of random weights."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.engine.chat.servers import LlamaByChat
from service.engine.servers.engine import Access, ServersEngine
from service.settings.settings import Settings
from tests.support.llama.seeing import PICTURE_TOKENS, seeing_server
from tests.support.llama.talker import KEY, LlamaProcess
from tests.support.pictures import png, said
from tests.support.service.inside import serving

CAT, DOG = png(grey=10), png(grey=200)
WORDS = "Look at it. " * 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaProcess]:
    server = seeing_server(tmp_path_factory.mktemp("eyes"))
    yield server
    server.kill()


@pytest.fixture
async def client(settings: Settings, server: LlamaProcess) -> AsyncIterator[AsyncOpenAI]:
    engine = ServersEngine(LlamaByChat(shared=False), Access((server.url,), api_key=KEY))
    async with serving(settings, engine) as service, service.client() as client:
        yield client


async def ask(client: AsyncOpenAI, words: Any, after: Any = None) -> Any:
    previous = after.id if after else None
    return await client.responses.create(
        model="talker", input=words, previous_response_id=previous, temperature=0, max_output_tokens=16
    )


async def test_it_says_that_it_sees_and_reads_each_picture(client: AsyncOpenAI) -> None:
    model = (await client.models.list()).data[0].to_dict()
    assert model["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
    blind, one, two = [await ask(client, said("Look", *pictures)) for pictures in ((), (CAT,), (CAT, DOG))]
    counts = [each.usage.input_tokens for each in (blind, one, two)]
    assert [count - counts[0] for count in counts] == [0, PICTURE_TOKENS, 2 * PICTURE_TOKENS]


async def test_behind_a_picture_a_continuation_finds_all_of_its_prompt_cached(client: AsyncOpenAI) -> None:
    first = await ask(client, said(CAT, WORDS))
    asked = [await ask(client, words, first) for words in ("And?", "Or?")] + [await ask(client, said(DOG, WORDS))]
    *behind, other = [each.usage.input_tokens_details.cached_tokens for each in asked]
    assert min(behind) > first.usage.input_tokens > PICTURE_TOKENS
    assert other < PICTURE_TOKENS, "it is the picture that differs"
