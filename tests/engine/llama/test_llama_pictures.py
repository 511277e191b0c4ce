"""Pictures on a real llama.cpp, which makes the prompts of the talker and reads each picture by eyes of random weights.

Its cache is judged beside what a client of its own gets, by Chat Completions and by `/completion` with
`multimodal_data`, whose prompt is a text and never ids.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from service.engine.chat.servers import LlamaByChat
from service.engine.servers.engine import Access, ServersEngine
from service.settings.settings import Settings
from tests.support.llama.seeing import PICTURE_TOKENS, seeing_server
from tests.support.llama.talker import KEY, LlamaProcess
from tests.support.pictures import png, said, url_of
from tests.support.service.inside import serving

CAT, DOG, COW, OWL = (png(grey=grey) for grey in (10, 200, 90, 150))
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


@pytest.fixture
async def direct(server: LlamaProcess) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server itself."""
    async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {KEY}"}) as http:
        yield http


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


async def test_behind_a_picture_a_continuation_finds_what_the_server_keeps_for_its_own_clients(
    client: AsyncOpenAI, direct: httpx.AsyncClient
) -> None:
    first = await ask(client, said(CAT, WORDS))
    again, fork, other = (
        await ask(client, "And?", first),
        await ask(client, "Or?", first),
        await ask(client, said(DOG, WORDS)),
    )
    ours = [each.usage.input_tokens_details.cached_tokens for each in (again, fork, other)]
    assert min(ours[:2]) > first.usage.input_tokens > PICTURE_TOKENS
    assert ours[:2] == await by_chat(direct, COW)
    assert max(await by_completion(direct, OWL)) <= max(ours)
    assert ours[2] < PICTURE_TOKENS, "it is the picture that differs"


def looked(picture: bytes) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": url_of(picture)}}
    return {"role": "user", "content": [image, {"type": "text", "text": WORDS}]}


async def post(direct: httpx.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    answer = await direct.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def by_chat(direct: httpx.AsyncClient, picture: bytes) -> list[int]:
    """How many tokens are cached of a continuation and a fork by Chat Completions."""
    messages, cached = [looked(picture)], list[int]()
    sampling = {"temperature": 0, "max_tokens": 16}
    told = await post(direct, "/v1/chat/completions", {"messages": messages, **sampling})
    messages.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
    for words in ("And?", "Or?"):
        more = [*messages, {"role": "user", "content": words}]
        told = await post(direct, "/v1/chat/completions", {"messages": more, **sampling})
        cached.append(told["usage"]["prompt_tokens_details"]["cached_tokens"])
    return cached


async def by_completion(direct: httpx.AsyncClient, picture: bytes) -> list[int]:
    """The same by prompts of text with `multimodal_data`."""
    messages, cached = [looked(picture)], list[int]()
    data = [b64encode(picture).decode()]

    async def complete(messages: list[Any]) -> Any:
        prompt = (await post(direct, "/apply-template", {"messages": messages}))["prompt"]
        asked = {"prompt": {"prompt_string": prompt, "multimodal_data": data}, "temperature": 0, "n_predict": 16}
        return await post(direct, "/completion", asked)

    told = await complete(messages)
    messages.append({"role": "assistant", "content": told["content"]})
    for words in ("And?", "Or?"):
        told = await complete([*messages, {"role": "user", "content": words}])
        cached.append(told["timings"]["cache_n"])
    return cached
