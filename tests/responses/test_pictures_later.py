"""Pictures as a conversation goes on: by another model, with what is said meanwhile, where a prompt is too long."""

import asyncio
import json
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from service.api.content import IMAGE
from service.settings.settings import Settings, load_settings
from tests.support.chat.standin import ChatStandin, answer, chatting, spoken, stall
from tests.support.markup.writing import Turn
from tests.support.pictures import png, said, shown_in, url_of
from tests.support.service.background import ended
from tests.support.service.inside import Inside, serving

CAT, DOG = png(grey=10), png(grey=200)
HELLO = answer(Turn("", "A cat.", []))


def before(settings: Settings, folder: Path, *servers: ChatStandin) -> Settings:
    """Settings with a file of these servers, each with the name of its model."""
    listed = [{"name": each.model, "kind": "chat", "urls": [each.url], "sees": each.sees} for each in servers]
    path = folder / "engines.json"
    path.write_text(json.dumps({"engines": listed}))
    return load_settings(redis_url=settings.redis_url, key_prefix=settings.key_prefix, engines=str(path))


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, model: str = "eyes", **more: Any) -> Any:
    previous = after.id if after else None
    return await client.responses.create(model=model, input=words, previous_response_id=previous, **more)


async def test_models_that_see_and_that_do_not_go_on_from_each_other(settings: Settings, tmp_path: Path) -> None:
    async with (
        chatting(lambda _: HELLO, model="eyes", sees=True) as eyes,
        chatting(lambda _: HELLO, model="blind") as blind,
        serving(before(settings, tmp_path, eyes, blind)) as service,
        service.client() as client,
    ):
        first = await ask(client, said("One", CAT))
        second = await ask(client, said("Two", DOG), first, model="blind")
        await ask(client, "Three", second)
    assert shown_in(blind.chats[-1].body) == [f"One\n{IMAGE}", "A cat.", f"Two\n{IMAGE}"]
    assert shown_in(eyes.chats[-1].body) == ["One", url_of(CAT), "A cat.", "Two", url_of(DOG), "A cat.", "Three"]


async def test_where_a_prompt_is_too_long_the_oldest_pictures_leave_it_with_their_words(
    settings: Settings, tmp_path: Path
) -> None:
    async with (
        chatting(lambda _: HELLO, model="eyes", sees=True, context_tokens=3_000) as eyes,
        serving(before(settings, tmp_path, eyes)) as service,
        service.client() as client,
    ):
        first = await ask(client, said("One " * 1_200, CAT))
        second = await ask(client, said("Two " * 1_200, DOG), first, truncation="auto")
        listed = await client.responses.input_items.list(second.id)
    shown = shown_in(eyes.chats[-1].body)
    assert shown[-2:] == ["Two " * 1_200, url_of(DOG)]
    assert url_of(CAT) not in shown
    assert not any(each.startswith("One") for each in shown)
    assert url_of(CAT) in json.dumps([each.to_dict() for each in listed.data]), "nothing is lost"


async def steer(service: Inside, id: str, words: Any) -> None:
    async with service.http() as http:
        steered = await http.post(f"/v1/responses/{id}/steer", json={"input": words})
        assert steered.status_code == 200, steered.text


async def test_a_picture_that_is_shown_amid_an_answer_is_in_the_prompt_that_goes_on(
    settings: Settings, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    async def hold() -> None:
        begun.set()
        await stall()

    beginning = spoken(Turn("", "One, two", []), ids=False)
    async with (
        chatting(lambda _: (*beginning, hold), lambda _: HELLO, model="eyes", sees=True) as eyes,
        serving(before(settings, tmp_path, eyes)) as service,
        service.client() as client,
    ):
        queued = await ask(client, said("Look", CAT), background=True)
        await begun.wait()
        await steer(service, queued.id, said("And this", DOG))
        target: Any = (await ended(client, queued.id)).to_dict()
        successor = await ended(client, target["harmonium"]["succeeded_by"])
        listed = await client.responses.input_items.list(successor.id)
    assert shown_in(eyes.chats[-1].body) == ["Look", url_of(CAT), "One, two", "And this", url_of(DOG)]
    assert url_of(DOG) in json.dumps([each.to_dict() for each in listed.data])
