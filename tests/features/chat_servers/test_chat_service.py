"""The Responses API over servers that are asked by Chat Completions, with the official SDK."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.servers.engine import Access, ServersEngine
from service.process import Settings
from tests.support.chat.standin import BREAK, CHAT, ChatStandin, Say, answer, chatting, delta, spoken
from tests.support.engine.misbehaviour import Instead
from tests.support.engine.standin_wire import DONE
from tests.support.markup.writing import Turn
from tests.support.oracles.event_grammar import check_stream
from tests.support.service import inside
from tests.support.service.background import ended

serving = partial(inside.serving, timing=Timing(poll_seconds=0.02, engine_away=Backoff(0.01, 0.02)))

PLACE: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "get_weather", "description": "Looks", "parameters": PLACE, "strict": True}
LOOKING = Turn("I need both.", "", [("get_weather", {"city": city}) for city in ("Paris", "Rome")])
HELLO = Turn("They greet me.", "Hello, friend \U0001f600!", [])


def says(*turns: Turn) -> list[Say]:
    """What a server answers, one after another."""
    return [lambda _, turn=turn: answer(turn) for turn in turns]


@asynccontextmanager
async def asked(settings: Settings, *answers: Say, **traits: Any) -> AsyncIterator[tuple[AsyncOpenAI, ChatStandin]]:
    """A client of a service before such a server, and the server."""
    async with chatting(*answers, **traits) as server:
        engine = ServersEngine(server.kind, Access((server.url,)))
        async with serving(settings, engine) as service, service.client() as client:
            yield client, server


async def ask(client: AsyncOpenAI, words: Any, after: Any = None, **more: Any) -> Any:
    previous = after.id if after else None
    return await client.responses.create(model="llama-4", input=words, previous_response_id=previous, **more)


async def streamed(client: AsyncOpenAI, words: str, **more: Any) -> dict[str, Any]:
    """The response of a stream whose events are in order."""
    stream = await ask(client, words, stream=True, **more)
    return check_stream([event.to_dict() async for event in stream])


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


def messages(server: ChatStandin) -> list[dict[str, Any]]:
    return server.chats[-1].body["messages"]


@pytest.mark.parametrize("vllm", [True, False])
async def test_turns_are_streams_of_items_and_the_next_one_has_them(settings: Settings, vllm: bool) -> None:
    async with asked(settings, *says(HELLO), vllm=vllm) as (client, server):
        first = await streamed(client, "Hello!", instructions="Be kind.")
        assert [item["type"] for item in first["output"]] == ["reasoning", "message"]
        usage = first["usage"]
        assert (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]) == (40, 16)
        assert usage["output_tokens"] == len(spoken(HELLO))
        assert usage["output_tokens_details"]["reasoning_tokens"] in range(4, 6)
        second = await client.responses.create(model="llama-4", input="Again.", previous_response_id=first["id"])
    assert second.output_text == HELLO.text
    assert messages(server) == [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "reasoning_content": HELLO.reasoning, "content": HELLO.text},
        {"role": "user", "content": "Again."},
    ]


async def test_functions_are_called_in_parallel_and_their_outputs_go_round(settings: Settings) -> None:
    async with asked(settings, *says(LOOKING, HELLO)) as (client, server):
        called = await ask(client, "Both?", tools=[WEATHER], tool_choice="required")
        assert kinds(called) == ["reasoning", "function_call", "function_call"]
        assert [json.loads(call.arguments) for call in called.output[1:]] == [value for _, value in LOOKING.calls]
        body = server.chats[-1].body
        assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", True)
        assert body["tools"][0]["function"]["strict"]
        calls = called.output[1:]
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "21"} for call in calls]
        told = await ask(client, outputs, called, tools=[WEATHER])
    assert told.output_text == HELLO.text
    user, assistant, *tools = messages(server)
    assert user["role"] == "user"
    assert assistant["reasoning_content"] == LOOKING.reasoning
    assert [call["id"] for call in assistant["tool_calls"]] == [call.call_id for call in calls]
    assert [each["tool_call_id"] for each in tools] == [call.call_id for call in calls]


async def test_what_was_asked_for_and_did_not_come_fails_at_the_end(settings: Settings) -> None:
    wrong = Turn("", "", [("get_weather", {"town": "Paris"})])
    async with asked(settings, *says(HELLO, wrong)) as (client, _):
        none = await ask(client, "Both?", tools=[WEATHER], tool_choice="required")
        assert (none.status, none.error.message) == ("failed", "The model called no tool, although one was required.")
        other = await ask(client, "Both?", tools=[WEATHER])
        assert other.status == "failed"
        assert "does not match the format" in other.error.message


async def test_a_prompt_that_the_server_forbids_keeps_nobody_else_from_it(settings: Settings) -> None:
    async with asked(settings, *says(HELLO)) as (client, server):
        server.instead[CHAT] = Instead((b'{"error": {"message": "flagged; your key is sk-1"}}',), 403)
        with pytest.raises(BadRequestError, match="forbids it") as error:
            await ask(client, "Something bad.")
        failed = await ended(client, (await ask(client, "Something bad.", background=True)).id)
        assert (failed.status, len(server.chats)) == ("failed", 2)  # one for each, as it was never down
        assert "sk-1" not in f"{error.value} {failed.error}"
        del server.instead[CHAT]
        assert (await ask(client, "Hello!")).output_text == HELLO.text


async def test_where_nobody_tells_the_prompt_s_length_it_is_guessed(settings: Settings) -> None:
    untold = [*spoken(HELLO, ids=False), delta({}, "stop"), DONE]
    async with asked(settings, lambda _: untold) as (client, _):
        response = await ask(client, "Hello!")
        estimate = await client.responses.input_tokens.count(model="llama-4", input="Hello!")
    assert response.usage is not None
    assert response.usage.input_tokens == estimate.input_tokens > 0


async def test_what_had_shown_nothing_begins_anew_and_what_had_fails(settings: Settings) -> None:
    before: Sequence[Any] = [*spoken(HELLO)[:1], BREAK]
    behind: Sequence[Any] = [*spoken(HELLO)[:4], BREAK]
    async with asked(settings, lambda _: before, *says(HELLO)) as (client, server):
        anew = await ended(client, (await ask(client, "Hello!", background=True)).id)
        assert (anew.status, anew.output_text, len(server.chats)) == ("completed", HELLO.text, 2)
    async with asked(settings, lambda _: behind, *says(HELLO)) as (client, server):
        failed = await ended(client, (await ask(client, "Hello!", background=True)).id)
        assert (failed.status, len(server.chats)) == ("failed", 1)
        assert failed.error is not None
        assert "broke" in failed.error.message
