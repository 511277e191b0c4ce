"""Pictures over HTTP: what a model that sees is sent, what is listed, and that each is stored once."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis.asyncio
from openai import AsyncOpenAI, BadRequestError

from service.api.content import IMAGE
from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.servers.engine import Access, ServersEngine
from service.process import Settings, load_settings
from tests.support.chat.standin import ChatStandin, Say, answer, chatting
from tests.support.markup.writing import Turn
from tests.support.pictures import part, png, said, shown_in, url_of
from tests.support.service import inside
from tests.support.service.background import ended
from tests.support.service.inside import Inside
from tests.support.store.verdict import checked
from tests.support.waiting import until

serving = partial(inside.serving, timing=Timing(poll_seconds=0.02, engine_away=Backoff(0.01, 0.02)))

CAT, DOG = png(grey=10), png(grey=200)
HELLO = Turn("", "A cat.", [])
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


class Seeing(NamedTuple):
    """A service before a server whose model sees, or doesn't, and a client."""

    client: AsyncOpenAI
    server: ChatStandin
    service: Inside
    settings: Settings

    async def ask(self, words: Any, after: Any = None, **more: Any) -> Any:
        previous = after.id if after else None
        return await self.client.responses.create(model="llama-4", input=words, previous_response_id=previous, **more)

    def shown(self) -> list[str]:
        """The pictures and texts of the last prompt, a picture as its data URL."""
        return shown_in(self.server.chats[-1].body)

    async def listed(self, id: str) -> list[str]:
        """The URLs of the images that a response was given."""
        items = await self.client.responses.input_items.list(id, order="asc")
        contents = [each.to_dict().get("content") or each.to_dict().get("output") for each in items.data]
        return [part["image_url"] for content in contents for part in content or () if "image_url" in part]

    async def kept(self) -> list[bytes]:
        """The keys of pictures in the store."""
        async with redis.asyncio.from_url(self.settings.redis_url) as client:
            return sorted([key async for key in client.scan_iter(f"{self.settings.redis_prefix}:*:picture:*")])


@asynccontextmanager
async def seeing(
    settings: Settings, *answers: Say, sees: bool = True, vllm: bool = True, **more: Any
) -> AsyncIterator[Seeing]:
    says = answers or (lambda _: answer(HELLO),)
    async with chatting(*says, vllm=vllm, sees=sees and vllm) as server:
        engine = ServersEngine(server.kind, Access((server.url,)), sees=sees and not vllm)
        async with serving(settings.model_copy(update=more), engine) as service, service.client() as client:
            yield Seeing(client, server, service, settings)


@pytest.mark.parametrize("vllm", [True, False])
async def test_the_sdks_image_example_runs_unchanged_and_a_later_turn_shows_the_picture_again(
    settings: Settings, vllm: bool
) -> None:
    async with seeing(settings, vllm=vllm) as asked:
        b64_image = b64encode(CAT).decode("utf-8")
        prompt = "What is in this image?"
        response = await asked.client.responses.create(
            model="llama-4",
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": prompt},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{b64_image}"},  # type: ignore[list-item]
                    ],
                }
            ],
        )
        assert response.output_text == "A cat."
        assert asked.shown() == [prompt, url_of(CAT)]
        assert "max_tokens" not in asked.server.chats[-1].body, "the picture may have more tokens than there is room"
        await asked.ask("And its colour?", response)
        assert asked.shown() == [prompt, url_of(CAT), "A cat.", "And its colour?"]
        assert await asked.listed(response.id) == [url_of(CAT)]
        _, items = (await asked.service.store.items("default", [response.id]))[0]
    assert b"base64" not in items


async def test_forks_and_other_conversations_of_a_tenant_store_a_picture_once(settings: Settings) -> None:
    async with seeing(settings) as asked:
        first = await asked.ask(said("One", CAT))
        await asyncio.gather(*(asked.ask(said("Again", CAT), first) for _ in range(3)))
        (key,) = await asked.kept()
        other = await asked.ask(said("Two", CAT, DOG))
        assert len(await asked.kept()) == 2
        await asked.client.responses.delete(other.id)
        assert await asked.kept() == [key]


async def test_a_picture_that_the_store_lost_leaves_words_for_the_model_and_a_warning(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with seeing(settings) as asked, redis.asyncio.from_url(settings.redis_url) as client:
        first = await asked.ask(said("What is it?", CAT))
        assert "are gone" not in caplog.text
        (node,) = [key async for key in client.scan_iter(f"{settings.redis_prefix}:*:node:*")]
        await client.hdel(node, "pictures")
        report = await checked(settings.redis_url, settings.redis_prefix, repair=True)
        kept = await asked.kept()
        assert (report.left, len(kept)) == (1, 1)  # a check deletes no picture of which it isn't sure
        await client.delete(*kept)
        second = await asked.ask("And its colour?", first)
        words, gone, *_ = asked.shown()
        assert (words, "deleted" in gone) == ("What is it?", True)
    (lost,) = [each for each in caplog.records if "are gone" in each.message]
    assert (lost.levelname, second.id in str(lost.__dict__)) == ("WARNING", True)


async def test_a_background_response_takes_its_picture_from_the_store(settings: Settings) -> None:
    async with seeing(settings) as asked:
        response = await ended(asked.client, (await asked.ask(said("Look", CAT), background=True)).id)
        assert response.output_text == "A cat."
        assert asked.shown() == ["Look", url_of(CAT)]
        assert await asked.listed(response.id) == [url_of(CAT)]
        assert len(await asked.kept()) == 1


async def test_a_model_that_does_not_see_is_told_of_a_picture_and_the_header_says_so(settings: Settings) -> None:
    async with seeing(settings, sees=False) as asked:
        raw = await asked.client.responses.with_raw_response.create(model="llama-4", input=said("Look", CAT))  # type: ignore[arg-type]
        assert raw.headers["x-harmonium-items-left-out"] == "input_image"
        assert asked.shown() == [f"Look\n{IMAGE}"]
        models = await asked.client.models.list()
        assert models.data[0].to_dict()["architecture"]["input_modalities"] == ["text"]


async def test_models_tell_that_they_see_and_no_header_says_otherwise(settings: Settings) -> None:
    async with seeing(settings) as asked:
        raw = await asked.client.responses.with_raw_response.create(model="llama-4", input=said("Look", CAT))  # type: ignore[arg-type]
        assert "x-harmonium-items-left-out" not in raw.headers
        model = (await asked.client.models.list()).data[0].to_dict()
        assert model["architecture"]["input_modalities"] == ["text", "image"]
        assert "vision" in model["capabilities"]


async def test_the_output_of_a_function_shows_a_picture(settings: Settings) -> None:
    says = [lambda _, turn=turn: answer(turn) for turn in (Turn("", "", [("look", {})]), HELLO)]
    async with seeing(settings, *says) as asked:
        called = await asked.ask("Look out.", tools=[TOOL])
        call = next(each for each in called.output if each.type == "function_call")
        output = [{"type": "input_text", "text": "Seen:"}, part(CAT, "low")]
        told = await asked.ask(
            [{"type": "function_call_output", "call_id": call.call_id, "output": output}], called, tools=[TOOL]
        )
        assert asked.shown()[-2:] == ["Seen:", url_of(CAT)]
        assert await asked.listed(told.id) == [url_of(CAT)]


async def test_items_by_hand_show_pictures_until_they_are_erased(settings: Settings) -> None:
    async with seeing(settings) as asked:
        conversation = await asked.client.conversations.create()
        added = await asked.client.conversations.items.create(conversation.id, items=said("A", CAT))  # type: ignore[arg-type]
        assert added.data[0].to_dict()["content"][1]["image_url"] == url_of(CAT)
        await asked.ask("What is it?", conversation=conversation.id)
        assert asked.shown() == ["A", url_of(CAT), "What is it?"]
        found = await asked.client.conversations.items.list(conversation.id, order="asc")
        assert found.data[0].to_dict()["content"][1]["image_url"] == url_of(CAT)
        path = f"/v1/conversations/{conversation.id}/items/{added.data[0].id}?erase=true"
        async with asked.service.http() as http:
            assert (await http.delete(path)).status_code == 200
        assert await asked.kept() == []
        await asked.ask("And now?", conversation=conversation.id)
        assert asked.shown() == ["What is it?", "A cat.", "And now?"]


@pytest.mark.parametrize("role", ["developer", "system", "user"])
async def test_what_is_erased_takes_no_picture_that_another_item_lists(settings: Settings, role: str) -> None:
    async with seeing(settings, lambda _: answer(Turn("", "Short.", []))) as asked, asked.service.http() as http:
        sent = {"model": "llama-4", "input": "Compact me."}
        short = (await http.post("/v1/responses/compact", json=sent)).json()["output"][-1]
        behind = [short] if role == "user" else []  # no prompt shows what is before it
        items = [{**said("Keep", CAT)[0], "role": role}, *behind, *said("Erase", DOG)]
        conversation = await asked.client.conversations.create(items=items)  # type: ignore[arg-type]
        path = f"/v1/conversations/{conversation.id}/items"
        listed = (await http.get(path, params={"order": "asc"})).json()["data"]
        assert (await http.delete(f"{path}/{listed[-1]['id']}", params={"erase": "true"})).status_code == 200
        left = (await http.get(path, params={"order": "asc"})).json()["data"]
        assert left == listed[:-1]
        assert len(await asked.kept()) == 1
        assert (await http.delete(f"{path}/{listed[0]['id']}", params={"erase": "true"})).status_code == 200
        assert await asked.kept() == []


async def test_an_item_is_referred_to_with_its_picture(settings: Settings) -> None:
    async with seeing(settings) as asked:
        first = await asked.ask(said("One", CAT))
        (item,) = (await asked.client.responses.input_items.list(first.id)).data
        await asked.ask([{"type": "item_reference", "id": item.id}])
        assert asked.shown() == ["One", url_of(CAT)]


async def test_a_picture_that_is_not_stored_is_shown_and_nothing_is_kept(settings: Settings) -> None:
    async with seeing(settings) as asked:
        await asked.ask(said("One", CAT), store=False)
        assert asked.shown() == ["One", url_of(CAT)]
        assert await asked.kept() == []


async def test_a_prompt_has_only_so_many_pictures(settings: Settings) -> None:
    async with seeing(settings, pictures={"conversation": 2}) as asked:
        first = await asked.ask(said("One", CAT, DOG))
        with pytest.raises(BadRequestError) as refused:
            await asked.ask(said("Two", CAT), first)
        assert refused.value.code == "too_many_images"
        await asked.ask("Two", first)


async def test_prompts_wait_for_room_for_their_pictures(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shades = [png(grey=grey, comment=bytes(1 << 10)) for grey in range(3)]
    monkeypatch.setattr("service.process.ROOM_BYTES", len(shades[0]) * 5 // 2)
    at_once, gate = [0], asyncio.Event()

    async def wait() -> None:
        at_once[0] += 1
        await gate.wait()

    async with seeing(settings, lambda _: (wait, *answer(HELLO))) as asked:
        asking = [asyncio.create_task(asked.ask(said("Look", each))) for each in shades]
        await until(lambda: at_once[0] == 2)
        words = await asked.ask("No picture", stream=True)
        await until(lambda: at_once[0] == 3)  # it needs no room
        await words.close()
        gate.set()
        assert [each.output_text for each in await asyncio.gather(*asking)] == ["A cat."] * 3


async def test_a_compaction_keeps_the_newest_pictures_and_lines_for_the_others(settings: Settings) -> None:
    says = [lambda _, turn=turn: answer(turn) for turn in (HELLO, Turn("", "Short.", []), HELLO)]
    async with seeing(settings, *says) as asked:
        first = await asked.ask(said("One " * 800, CAT))
        second = await asked.ask(
            said("Two", DOG), first, context_management=[{"type": "compaction", "compact_threshold": 600}]
        )
        assert [each.type for each in second.output] == ["compaction", "message"]
        assert asked.shown()[-2:] == ["Two", url_of(DOG)]
        await asked.ask("Three", second)
        assert url_of(DOG) in asked.shown()
        assert url_of(CAT) not in asked.shown()


async def test_messages_of_anthropics_api_show_pictures(settings: Settings) -> None:
    async with seeing(settings, chats="remember") as asked, asked.service.http() as http:
        source = {"type": "base64", "media_type": "image/png", "data": b64encode(CAT).decode()}
        content = [{"type": "text", "text": "Look"}, {"type": "image", "source": source}]
        body = {"model": "llama-4", "max_tokens": 50, "messages": [{"role": "user", "content": content}]}
        answered = await http.post("/v1/messages", json=body)
        assert answered.status_code == 200, answered.text
        assert asked.shown() == ["Look", url_of(CAT)]
        more = [*body["messages"], {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "And?"}]
        await http.post("/v1/messages", json=body | {"messages": more})
        assert asked.shown() == ["Look", url_of(CAT), "A cat.", "And?"]
        assert len(await asked.kept()) == 1


async def test_chat_completions_show_pictures(settings: Settings) -> None:
    async with seeing(settings, chats="remember") as asked:
        image = {"type": "image_url", "image_url": {"url": url_of(CAT), "detail": "low"}}
        words = [{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}]
        await asked.client.chat.completions.create(model="llama-4", messages=words)  # type: ignore[arg-type]
        assert asked.shown() == ["Look", url_of(CAT)]
        assert len(await asked.kept()) == 1


async def test_models_that_see_and_that_do_not_go_on_from_each_other(settings: Settings, tmp_path: Path) -> None:
    async with (
        chatting(lambda _: answer(HELLO), model="eyes", sees=True) as eyes,
        chatting(lambda _: answer(HELLO), model="blind") as blind,
    ):
        listed = [{"name": each.model, "kind": "chat", "urls": [each.url], "sees": each.sees} for each in (eyes, blind)]
        path = tmp_path / "engines.json"
        path.write_text(json.dumps({"engines": listed}))
        two = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, engines=str(path))
        async with serving(two) as service, service.client() as client:
            previous: Any = None
            for model, words in (("eyes", said("One", CAT)), ("blind", said("Two", DOG)), ("eyes", "Three")):
                made = await client.responses.create(model=model, input=words, previous_response_id=previous)  # type: ignore[arg-type]
                previous = made.id
    assert shown_in(blind.chats[-1].body) == [f"One\n{IMAGE}", "A cat.", f"Two\n{IMAGE}"]
    assert shown_in(eyes.chats[-1].body) == ["One", url_of(CAT), "A cat.", "Two", url_of(DOG), "A cat.", "Three"]
