"""Pictures beside prompts of ids on vLLM: each prompt begins with the very ids of the one before, answers too."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.api.content import IMAGE
from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.servers.engine import Access, ServersEngine
from service.process import Settings
from tests.support.engine.standing import standing
from tests.support.markup.speaker import END, decoded, encoded
from tests.support.pictures import png, said, url_of
from tests.support.service import inside
from tests.support.service.background import ended
from tests.support.vllm.seeing import MORE, PICTURE, SeeingStandin

serving = partial(inside.serving, timing=Timing(poll_seconds=0.02, engine_away=Backoff(0.01, 0.02)))

CAT, DOG = png(grey=10), png(grey=200)
ANSWER = "A cat, and behind it a dog."


@asynccontextmanager
async def seeing(settings: Settings, **traits: Any) -> AsyncIterator[tuple[SeeingStandin, AsyncOpenAI]]:
    async with standing(SeeingStandin(ANSWER), **traits) as server:
        engine = ServersEngine(server.kind, Access((server.url,), probe_seconds=0.05))
        async with serving(settings, engine) as service, service.client() as client:
            yield server, client


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, **more: Any) -> Any:
    previous = after.id if after else None
    return await client.responses.create(model="seeing", input=words, previous_response_id=previous, **more)


def shown(server: SeeingStandin) -> list[str]:
    return [part["url"] for part in server.generations[-1].body["content_parts"]]


async def test_a_prompt_of_ids_marks_its_pictures_and_they_are_given_in_their_order(settings: Settings) -> None:
    async with seeing(settings) as (server, client):
        model = (await client.models.list()).data[0].to_dict()
        assert model["architecture"] == {"input_modalities": ["text", "image"], "output_modalities": ["text"]}
        first = await ask(client, said("Look", DOG))
        assert first.output_text == ANSWER
        second = await ask(client, said(CAT, "and", DOG), first)
        before, prompt = (each.body["token_ids"] for each in server.generations)
    assert [each.usage.input_tokens for each in (first, second)] == [len(before) + MORE, len(prompt) + 3 * MORE]
    assert server.generations[-1].body["sampling_params"]["logit_bias"] == {str(ord(PICTURE)): -100.0}
    assert shown(server) == [url_of(each) for each in (DOG, CAT, DOG)]
    assert prompt[: len(before) + len(ANSWER)] == before + encoded(ANSWER)
    assert f"{PICTURE}and{PICTURE}" in decoded(prompt)


async def test_broken_off_amid_an_answer_it_goes_on_at_the_token_with_its_pictures(settings: Settings) -> None:
    async with seeing(settings, breaks_behind=[5]) as (server, client):
        response = await ended(client, (await ask(client, said("Look", CAT), background=True)).id)
        first, second = (each.body for each in server.generations)
    assert (response.status, response.output_text) == ("completed", ANSWER)
    assert second["token_ids"] == first["token_ids"] + encoded(ANSWER[:5])
    assert second["content_parts"] == first["content_parts"] == [{"type": "image_url", "url": url_of(CAT)}]
    assert response.usage is not None
    assert response.usage.input_tokens == len(first["token_ids"]) + MORE
    assert response.usage.output_tokens == len(encoded(ANSWER + END))


async def test_a_prompt_with_pictures_that_is_too_long_is_made_shorter_or_refused(settings: Settings) -> None:
    async with seeing(settings, context_tokens=700) as (server, client):
        first = await ask(client, said("One " * 100, CAT))
        await ask(client, said("Two " * 100, DOG), first, truncation="auto")
        assert shown(server) == [url_of(DOG)]
        with pytest.raises(BadRequestError, match="context") as refused:
            await ask(client, said("Three " * 100, CAT), first)
    assert refused.value.code == "context_length_exceeded"


async def test_a_server_that_takes_one_picture_at_a_time_is_given_none(settings: Settings) -> None:
    async with seeing(settings, most=1) as (server, client):
        await ask(client, said("Look", CAT))
    assert "content_parts" not in server.generations[-1].body
    assert f"Look\n{IMAGE}" in decoded(server.generations[-1].body["token_ids"])
