"""Pictures on a real llama.cpp, which makes the prompts of the talker and reads pictures by eyes of random weights."""

from pathlib import Path
from typing import Any

from service.engine.servers.engine import Access, ServersEngine
from service.features.chat_servers.servers import LlamaByChat
from service.process import Settings
from tests.support.llama.seeing import PICTURE_TOKENS, seeing_server
from tests.support.llama.talker import KEY
from tests.support.pictures import png, said
from tests.support.service.inside import serving

CAT, DOG = png(grey=10), png(grey=200)
WORDS = "Look at it. " * 10


async def test_each_picture_is_read_and_behind_one_all_of_the_prompt_is_cached(
    settings: Settings, tmp_path: Path
) -> None:
    server = seeing_server(tmp_path)
    engine = ServersEngine(LlamaByChat(shared=False), Access((server.url,), api_key=KEY))

    async def ask(words: Any, after: str | None = None) -> Any:
        return await client.responses.create(
            model="talker", input=words, previous_response_id=after, temperature=0, max_output_tokens=16
        )

    try:
        async with serving(settings, engine) as service, service.client() as client:
            model = (await client.models.list()).data[0].to_dict()
            assert model["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
            counts = [(await ask(said("Look", *shown))).usage.input_tokens for shown in ((), (CAT,), (CAT, DOG))]
            assert [count - counts[0] for count in counts] == [0, PICTURE_TOKENS, 2 * PICTURE_TOKENS]
            first = await ask(said(CAT, WORDS))
            asked = [await ask("And?", first.id), await ask("Or?", first.id), await ask(said(DOG, WORDS))]
            *behind, other = [each.usage.input_tokens_details.cached_tokens for each in asked]
            assert min(behind) > first.usage.input_tokens > PICTURE_TOKENS
            assert other < PICTURE_TOKENS, "it is the picture that differs"
    finally:
        server.kill()
