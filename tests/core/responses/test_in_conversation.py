"""Responses of a conversation: what they are given, what joins it, and that there is one at a time."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from service.engine.port import EngineError, Generation
from service.harmony.tokens import RETURN, decode, encode
from service.process import Settings
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.engine.scripted import Die, Stall, Step
from tests.support.service.inside import answer, called, opened, scripted, serving
from tests.support.service.listed import begun, roles
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.seen import ask as asking
from tests.support.waiting import until

LOCKED = "Another process is currently operating on this conversation. Please retry in a few seconds."
WEATHER: Any = {"type": "function", "name": "get_weather", "description": "", "parameters": None, "strict": False}


def ask(client: OpenAI, text: str, id: str, **options: Any) -> Any:
    return client.responses.create(model=MODEL, input=text, conversation=id, **options)


def kinds(client: OpenAI, id: str) -> list[tuple[str, str]]:
    """The roles, or else types, of a conversation's items with their texts, oldest first."""
    items = client.conversations.items.list(id, order="asc", limit=100)
    shown = [item.to_dict() for item in items]
    return [
        (str(item.get("role", item["type"])), "".join(part["text"] for part in item["content"]))  # type: ignore
        for item in shown
        if item["type"] == "message"
    ]


def test_a_response_is_given_the_conversation_and_joins_it(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[{"role": "user", "content": "My name is Ada."}]).id
    first = ask(client, "What is my name?", id)
    assert "Ada" in first.output_text
    assert first.conversation is not None
    assert first.conversation.id == id
    assert first.previous_response_id is None
    assert client.responses.retrieve(first.id).conversation == first.conversation
    ask(client, "The secret word is marmalade.", id)
    last = ask(client, "What is the secret word?", id)
    assert "marmalade" in last.output_text
    said = kinds(client, id)
    assert [role for role, _ in said] == ["user"] + ["user", "assistant"] * 3
    assert said[2] == ("assistant", first.output_text)
    assert said[-1] == ("assistant", last.output_text)


def test_a_stream_joins_before_its_last_event(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    for number in range(5):  # each begins as soon as it has seen the end of the one before
        with client.responses.stream(model=MODEL, input=f"Count to {number}.", conversation=id) as events:
            for event in events:
                if event.type == "response.completed":
                    assert event.response.conversation is not None
                    break
    assert len(kinds(client, id)) == 10


def test_what_is_not_stored_reads_and_does_not_join(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[{"role": "user", "content": "My name is Ada."}]).id
    assert "Ada" in ask(client, "What is my name?", id, store=False).output_text
    assert len(kinds(client, id)) == 1


# --- what can't be caused from outside ---


def pausing(silent: asyncio.Event, go: asyncio.Event) -> Callable[[Generation], Iterator[Step]]:
    """A script that says something, sets `silent`, and says the rest once it may `go`."""

    def script(generation: Generation) -> Iterator[Step]:
        yield opened("Said so far,")
        silent.set()
        yield Stall(go)
        yield [*encode(" and the rest."), RETURN]

    return script


async def overtake(settings: Settings, id: str) -> None:
    """Add a turn to a conversation as a run of another process would, once this one's hold has ended."""
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.redis_prefix)
    conversations = Conversations(store)
    chain = await conversations.chain("default", id)
    said = b'[{"id":"msg_1","type":"message","role":"user","status":"completed","content":[]}]'
    turn = by_hand(conversations.new_turn_id(id), chain.tip, (), said)
    digits = id.removeprefix("conv_")
    pins = store.keyspace.keys("default", digits).key("pins")
    client = connect(settings.redis_url)
    await client.delete(pins)
    await client.aclose()
    await conversations.advance("default", id, turn, hold="another")
    await store.close()


async def test_a_second_response_at_once_is_refused_before_anything_is_sampled(settings: Settings) -> None:
    silent = asyncio.Event()

    engine = scripted(pausing(silent, asyncio.Event()), [answer("second")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = await begun(client)
        async with await asking(client, input="hi", conversation=id, stream=True) as stream:
            await stream.__anext__()
            await silent.wait()
            for refused in (
                asking(client, input="hi", conversation=id),
                client.conversations.items.create(id, items=[{"role": "user", "content": "x"}]),
            ):
                with pytest.raises(openai.BadRequestError) as refusal:
                    await refused
                assert (refusal.value.code, refusal.value.param) == ("conversation_locked", "conversation")
                assert refusal.value.message.endswith(LOCKED)
            assert len(engine.generations) == 1
            aside = await asking(client, input="hi", conversation=id, store=False)
            assert aside.output_text == "second"
        await until(lambda: roles(client, id), wanted=lambda found: found == ["user", "assistant"])
        await until(lambda: asking(client, input="hi", conversation=id), passing=openai.BadRequestError)


async def test_a_call_joins_so_that_its_output_finds_it(settings: Settings) -> None:
    engine = scripted([called("get_weather", "{}")], [answer("Sunny.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = await begun(client)
        first = await asking(client, input="Weather?", conversation=id, tools=[WEATHER])
        (call,) = [item for item in first.output if item.type == "function_call"]
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        last = await asking(client, input=[output], conversation=id, tools=[WEATHER])
        assert last.output_text == "Sunny."
        assert await roles(client, id) == ["user", "function_call", "function_call_output", "assistant"]


async def test_outputs_that_are_added_one_by_one_are_all_waited_for(settings: Settings) -> None:
    engine = scripted([answer("Sunny in both.")])
    calls: list[Any] = [
        {"type": "function_call", "call_id": f"call_{city}", "name": "get_weather", "arguments": f'{{"city":"{city}"}}'}
        for city in ("Paris", "Rome")
    ]
    paris, rome = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"sun of {call['call_id']}"}
        for call in calls
    ]
    async with serving(settings, engine) as inside, inside.client() as client:
        items: list[Any] = [{"role": "user", "content": "Weather?"}, *calls, rome]
        id = (await client.conversations.create(items=items)).id
        with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_Paris"):
            await asking(client, input="And now?", conversation=id, tools=[WEATHER])
        added: Any = [paris]
        await client.conversations.items.create(id, items=added)
        last = await asking(client, input="And now?", conversation=id, tools=[WEATHER])
        assert last.output_text == "Sunny in both."
    said = decode(list(engine.generations[0].prompt))
    assert said.index("sun of call_Paris") < said.index("sun of call_Rome")  # as the calls were made: they have no ids


async def test_what_failed_does_not_join_and_lets_go(settings: Settings) -> None:
    engine = scripted([opened("Half"), Die(EngineError("gone"))], [answer("whole")])
    async with serving(settings, engine) as inside, inside.client() as client:
        id = await begun(client)
        failed = await asking(client, input="hi", conversation=id)
        assert failed.status == "failed"
        assert await roles(client, id) == []
        assert (await asking(client, input="hi", conversation=id)).output_text == "whole"
        assert await roles(client, id) == ["user", "assistant"]


async def test_a_response_that_was_overtaken_says_that_it_failed(settings: Settings) -> None:
    silent, go = asyncio.Event(), asyncio.Event()
    async with serving(settings, scripted(pausing(silent, go))) as inside, inside.client() as client:
        id = await begun(client)
        asked = asyncio.create_task(asking(client, input="hi", conversation=id))
        await silent.wait()
        await overtake(settings, id)
        go.set()
        response = await asked
        assert response.status == "failed"
        assert response.error is not None
        assert "Another response was added" in response.error.message
        assert response.output_text
        assert await roles(client, id) == ["user"]


async def test_a_response_may_take_longer_than_its_lease(settings: Settings) -> None:
    settings = settings.model_copy(update={"lease_seconds": 4.0})
    silent, go = asyncio.Event(), asyncio.Event()
    engine = scripted([answer("warm")], pausing(silent, go))
    async with serving(settings, engine) as inside, inside.client() as client:
        await asking(client, input="hi")  # what the first request loads takes longer than some leases
        id = await begun(client)
        asked = asyncio.create_task(asking(client, input="hi", conversation=id))
        await silent.wait()
        loop = asyncio.get_running_loop()
        since = loop.time()
        while loop.time() < since + 5:
            with pytest.raises(openai.BadRequestError) as refusal:
                await asking(client, input="hi", conversation=id)
            assert refusal.value.code == "conversation_locked"
        go.set()
        assert (await asked).status == "completed"
        assert await roles(client, id) == ["user", "assistant"]
