"""Background responses that nobody follows: accepted at once, made by a worker, and to be read at any moment.

A conversation is held from their acceptance to their end, whoever makes them.
"""

import asyncio
import re
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.harmony.tokens import CHANNEL, CONSTRAIN, MESSAGE, RETURN, encode
from service.process import Settings
from tests.core.web.test_bad_input import LITERAL
from tests.core.web.test_errors import UNKNOWN
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed, ended, reached, retrieved, said, submitted
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, then, thought
from tests.support.service.listed import begun, roles
from tests.support.service.process import MODEL
from tests.support.service.seen import ask
from tests.support.store.counted import usage
from tests.support.waiting import until

FUNCTION: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
TIMES = {"created_at", "completed_at"}


async def posted(inside: Inside, **body: object) -> dict[str, Any]:
    """The answer to a create request, which must be a response."""
    async with inside.http() as http:
        found = await http.post("/v1/responses", json={"model": MODEL, "input": "hi", **body})
    assert found.status_code == 200, found.text
    return found.json()


def nameless(response: dict[str, Any]) -> str:
    """A response without what is its own: its digits, its times, and how it was asked for."""
    own = TIMES | {"background"}
    text = str({name: value for name, value in sorted(response.items()) if name not in own})
    return re.sub(r"(resp|msg|rs|fc|call)_[0-9a-f]{48}", r"\1_", text)


async def test_it_is_accepted_at_once_with_every_key_that_a_response_has(settings: Settings) -> None:
    request = {"metadata": {"ü": "☃"}, "instructions": "Be brief.", "service_tier": "flex", "user": "u"}
    async with serving(changed(settings, embedded_worker=False), scripted([answer("Hello.")])) as inside:
        foreground = await posted(inside, **request)
        queued = await posted(inside, **request, background=True)
        assert (await retrieved(inside, queued["id"])).json() == queued
    assert queued.keys() == foreground.keys()
    told = {"status": "queued", "output": [], "usage": None, "completed_at": None, "error": None, "background": True}
    assert {name: queued[name] for name in told} == told
    assert (queued["store"], queued["service_tier"], queued["metadata"]) == (True, "flex", request["metadata"])


@pytest.mark.parametrize(("asked", "told"), [(None, "default"), ("priority", "priority"), ("fast", "priority")])
async def test_the_service_tier_is_echoed_as_it_is_served(settings: Settings, asked: str | None, told: str) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        options: Any = {} if asked is None else {"service_tier": asked}
        queued = await submitted(client, **options)
        assert queued.service_tier == told
        assert (await ended(client, queued.id)).service_tier == told


SAID: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "an answer in pieces": ([[token] for token in [*thought("Let me see."), *then(answer("One two three."))]], {}),
    "control tokens in the input": ([answer("Fine.")], {"input": LITERAL, "instructions": LITERAL}),
    "a function call": ([thought("I call it.") + then(called("f", '{"a": 1}'))], {"tools": [FUNCTION]}),
    "one call of two": (
        [called("f", "{}") + then(called("f", '{"b": 2}'))],
        {"tools": [FUNCTION], "parallel_tool_calls": False},
    ),
    "nothing at all": ([[]], {}),
    "too much": ([[token] for token in answer("word " * 30)], {"max_output_tokens": 16}),
}


@pytest.mark.parametrize(("script", "request_"), SAID.values(), ids=SAID)
async def test_it_ends_as_it_would_have_ended_in_the_foreground(
    settings: Settings, script: list[Any], request_: dict[str, Any]
) -> None:
    engine = scripted(script)
    async with serving(settings, engine) as inside, inside.client() as client:
        foreground = await posted(inside, **request_)
        id = (await posted(inside, **request_, background=True))["id"]
        await ended(client, id)
        background = (await retrieved(inside, id)).json()
    prompts = [list(generation.prompt) for generation in engine.generations]
    assert prompts[: len(prompts) // 2] == prompts[len(prompts) // 2 :]
    assert nameless(background) == nameless(foreground)
    assert (background["completed_at"] is not None) == (background["status"] == "completed")
    assert background["usage"]["total_tokens"] > background["usage"]["output_tokens"] or not script[0]


CALL_BEGUN = [*encode(" to=functions.f"), CHANNEL, *encode("commentary "), CONSTRAIN, *encode("json"), MESSAGE]
BEGUN: dict[str, tuple[list[int], list[str]]] = {
    "reasoning": ([CHANNEL, *encode("analysis"), MESSAGE, *encode("Said so far")], ["reasoning"]),
    "a message": ([*thought("Hm."), *then(opened("Said so far"))], ["reasoning", "message"]),
    "a call": ([*thought("Hm."), *then([*CALL_BEGUN, *encode("Said so far")])], ["reasoning", "function_call"]),
}


@pytest.mark.parametrize(("ids", "kinds"), BEGUN.values(), ids=BEGUN)
async def test_what_is_there_so_far_is_read_in_the_middle_of_an_item(
    settings: Settings, ids: list[int], kinds: list[str]
) -> None:
    engine = scripted([ids, Stall()])
    async with serving(settings, engine) as inside, inside.client() as client:
        queued = await submitted(client, tools=[FUNCTION])
        found = await said(client, queued.id, "Said so far")
    assert (found.status, found.usage, found.completed_at) == ("in_progress", None, None)
    assert [item.type for item in found.output] == kinds
    assert [item.to_dict()["status"] for item in found.output] == [*["completed"] * (len(kinds) - 1), "in_progress"]
    assert found.to_dict() == {**queued.to_dict(), "status": "in_progress", "output": found.to_dict()["output"]}


REFUSED: dict[str, tuple[dict[str, Any], int]] = {
    "an unknown model": ({"model": "gpt-9"}, 404),
    "an unknown parent": ({"previous_response_id": UNKNOWN}, 400),
    "a prompt beyond the context": ({"input": "one " * 140_000}, 400),
}


@pytest.mark.parametrize(("request_", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_is_never_queued(settings: Settings, request_: dict[str, Any], status: int) -> None:
    async with serving(changed(settings, embedded_worker=False), scripted([])) as inside, inside.http() as http:
        for stream in (False, True):
            body = {"model": MODEL, "input": "hi", "background": True, "stream": stream, **request_}
            refused = await http.post("/v1/responses", json=body)
            assert (refused.status_code, refused.headers["content-type"]) == (status, "application/json")
        assert (await usage(inside.store)).responses == 0


async def test_a_parent_that_is_deleted_meanwhile_is_remembered(settings: Settings) -> None:
    go = asyncio.Event()
    engine = scripted([answer("Hello.")], [Stall(go), answer("Still here.")], [answer("So am I.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        parent = await ask(client, input="marmalade")
        child = await submitted(client, "Go on.", parent.id)
        await client.responses.delete(parent.id)
        go.set()
        assert (await ended(client, child.id)).output_text == "Still here."
        after = await ask(client, input="And?", previous_response_id=child.id)
    assert after.output_text == "So am I."
    beginning = list(engine.generations[1].prompt)
    assert list(engine.generations[2].prompt)[: len(beginning)] == beginning


@pytest.mark.parametrize("worker", [False, True], ids=["queued", "in_progress"])
async def test_what_is_under_way_can_not_be_continued_and_says_so(settings: Settings, worker: bool) -> None:
    async with (
        serving(changed(settings, embedded_worker=worker), scripted([Stall()])) as inside,
        inside.client() as client,
    ):
        id = (await submitted(client)).id
        await reached(client, id, "in_progress" if worker else "queued")
        with pytest.raises(openai.BadRequestError, match=r"Wait for its end") as refusal:
            await ask(client, input="hi", previous_response_id=id, background=worker)
    assert refusal.value.code == "previous_response_in_progress"
    assert refusal.value.param == "previous_response_id"


async def test_the_input_of_what_is_under_way_is_listed(settings: Settings) -> None:
    engine = scripted([answer("A.")], [opened("B"), Stall()])
    async with serving(settings, engine) as inside, inside.client() as client:
        parent = await ask(client, input="one")
        child = await submitted(client, "two", parent.id)
        await reached(client, child.id, "in_progress")
        items: Any = [item async for item in client.responses.input_items.list(child.id, order="asc")]
    assert [item.content[0].text for item in items] == ["one", "A.", "two"]
    assert items[1].id == parent.output[0].id


@pytest.mark.parametrize(("serves", "asks"), [({}, {"store": False}), ({"store": False}, {})])
async def test_what_is_not_to_be_stored_is_refused(
    settings: Settings, serves: dict[str, bool], asks: dict[str, Any]
) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(changed(settings, **serves), engine) as inside, inside.client() as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            await submitted(client, **asks)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", "background")


@pytest.mark.parametrize("changes", [{}, {"store": False}])
async def test_where_it_is_allowed_it_goes_when_its_events_go(
    settings: Settings, changes: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 0.05)
    allowing = changed(settings, background_without_store=True, stream_retention_seconds=4.0, **changes)
    async with serving(allowing, scripted([answer("Hello.")])) as inside, inside.client() as client:
        id = (await submitted(client, store=False)).id
        found = await ended(client, id)
        assert (found.output_text, found.to_dict()["store"]) == ("Hello.", False)
        with pytest.raises(openai.BadRequestError):
            await ask(client, input="And?", previous_response_id=id)
        await until(lambda: retrieved(inside, id), wanted=lambda found: found.status_code == 404)
        with pytest.raises(openai.NotFoundError):
            await client.responses.delete(id)


async def refuse(client: AsyncOpenAI, id: str) -> None:
    """All that would add to the conversation is refused at once, as somebody else does."""
    for refused in (
        ask(client, input="hi", conversation=id),
        ask(client, input="hi", conversation=id, background=True),
        client.conversations.items.create(id, items=[{"role": "user", "content": "x"}]),
    ):
        with pytest.raises(openai.BadRequestError) as refusal:
            await refused
        assert (refusal.value.code, refusal.value.param) == ("conversation_locked", "conversation")


async def test_it_holds_its_conversation_while_it_waits_and_while_it_runs_against_every_replica(
    settings: Settings,
) -> None:
    go = asyncio.Event()
    engine = scripted([opened("Said so far,"), Stall(go), [*encode(" and the rest."), RETURN]], [answer("Next.")])
    async with serving(changed(settings, embedded_worker=False), scripted([])) as idle, idle.client() as other:
        id = await begun(other)
        made = await submitted(other, conversation=id)
        assert (made.status, made.conversation and made.conversation.id) == ("queued", id)
        await refuse(other, id)
        async with serving(settings, engine) as working, working.client() as client:
            await said(client, made.id, "Said so far")
            await refuse(client, id)
            await refuse(other, id)
            assert await roles(client, id) == []
            go.set()
            assert (await ended(client, made.id)).output_text == "Said so far, and the rest."
            assert await roles(client, id) == ["user", "assistant"]
            again = await ask(client, input="hi", conversation=id)
            assert again.output_text == "Next."
            assert await roles(client, id) == ["user", "assistant"] * 2
