"""Messages of Anthropic's API and chat completions that are made here, over HTTP: the runs that all responses have."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jiter
import pytest
from openai import APIError, AsyncOpenAI, InternalServerError
from openai.types.chat import ChatCompletion

from service.engine.port import EngineError
from service.features.chats.dialects import MessagesEncoder
from service.harmony.tokens import END, decode, encode
from service.process import Settings
from service.responses.output.machine import Ending
from tests.support.engine.scripted import Die
from tests.support.responses.samples import machine, run
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL

PATH = "/v1/messages"
CHAT = "/v1/chat/completions"
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HI: Any = [{"role": "user", "content": "hi"}]
THINKING: Any = {"type": "enabled", "budget_tokens": 8192}
RAIN = "What is the weather in Paris?"


def body(messages: Any = HI, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 500, "messages": messages, **more}


@pytest.fixture
def remembering(settings: Settings) -> Settings:
    return settings.model_copy(update={"chats": "remember"})


@pytest.fixture
async def inside(remembering: Settings) -> AsyncIterator[Inside]:
    """The service over its demo engine."""
    async with serving(remembering) as inside:
        yield inside


@pytest.fixture
async def http(inside: Inside) -> AsyncIterator[httpx.AsyncClient]:
    async with inside.http() as http:
        yield http


async def ask(http: httpx.AsyncClient, messages: Any = HI, **more: Any) -> Any:
    reply = await http.post(PATH, json=body(messages, **more))
    assert reply.status_code == 200, reply.text
    return reply.json()


def events_of(told: str) -> list[Any]:
    """The events of a stream as it came, each of which has its type twice."""
    found: list[Any] = []
    for event in told.removesuffix("\n\n").split("\n\n"):
        kind, _, data = event.partition("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {found[-1]['type']}"
    return found


async def stream(http: httpx.AsyncClient, messages: Any = HI, **more: Any) -> list[Any]:
    return events_of((await http.post(PATH, json=body(messages, stream=True, **more))).text)


MORE = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def folded(events: list[Any]) -> Any:
    """The message that events add up to, as Anthropic's clients add them. Raises AssertionError for a wrong order."""
    first, *rest, end, last = events
    made, pieces = first["message"], ""
    assert (first["type"], end["type"], last["type"]) == ("message_start", "message_delta", "message_stop")
    running = False
    for event in rest:
        kind, place = event["type"], event["index"]
        if kind == "content_block_start":
            assert (running, place) == (False, len(made["content"]))
            made["content"].append(event["content_block"])
            running, pieces = True, ""
        elif kind == "content_block_stop":
            block = made["content"][-1]
            assert (running, place) == (True, len(made["content"]) - 1)
            if block["type"] == "tool_use":
                block["input"] = json.loads(pieces or "{}")
            running = False
        else:
            assert (kind, running, place) == ("content_block_delta", True, len(made["content"]) - 1)
            delta = event["delta"]
            if delta["type"] == "input_json_delta":
                pieces += delta["partial_json"]
            else:
                made["content"][-1][MORE[delta["type"]]] += delta[MORE[delta["type"]]]
    assert not running
    return made | end["delta"] | {"usage": end["usage"]}


def text(made: Any) -> str:
    return "".join(block["text"] for block in made["content"] if block["type"] == "text")


@pytest.mark.parametrize("thinking", [None, THINKING, THINKING | {"display": "omitted"}])
@pytest.mark.parametrize("said", ["Count to 9.", RAIN])
async def test_a_stream_adds_up_to_the_message(http: httpx.AsyncClient, thinking: Any, said: str) -> None:
    asked = {"messages": [{"role": "user", "content": said}], "tools": [WEATHER], "thinking": thinking, "store": False}
    whole, made = await ask(http, **asked), folded(await stream(http, **asked))
    for each in (whole, made):
        usage = each.pop("usage")
        each["usage"] = (usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"])
        each["id"] = each["content"][-1]["id"] = "another one"
    assert made == whole
    kinds = [block["type"] for block in whole["content"]]
    assert kinds == [*(["thinking"] if thinking else []), "tool_use" if said == RAIN else "text"]
    if thinking:
        assert whole["content"][0]["signature"].startswith("hs_")
        assert (whole["content"][0]["thinking"] == "") == ("display" in thinking)


@pytest.mark.parametrize("said", ["\n", '\n {"city": "Paris"}', '{ "city": "Paris"}'])
def test_the_pieces_of_an_input_can_be_parsed_from_the_first_on(said: str) -> None:
    made = run(machine(), [[id] for id in called("get_weather", said)], Ending.STOP)
    MessagesEncoder("shown").append(made, buffer := bytearray())
    events = events_of(buffer.decode())

    block = folded(events)["content"][0]
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert block["input"] == json.loads(said.strip() or "{}")
    for count in range(1, len(pieces) + 1):
        jiter.from_json("".join(pieces[:count]).encode(), partial_mode=True)


@pytest.mark.parametrize("shown", [True, False])
async def test_thinking_that_comes_back_is_the_reasoning_that_was_sampled(remembering: Settings, shown: bool) -> None:
    display = {} if shown else {"display": "omitted"}
    engine = scripted(
        [[*thought("Rain, perhaps."), *then(called("get_weather", '{"city":"Paris"}'))]], [answer("Wet.")]
    )
    async with serving(remembering, engine) as inside, inside.http() as http:
        asked: Any = {"tools": [WEATHER], "thinking": THINKING | display, "store": False}
        made = await ask(http, **asked)
        result = {"type": "tool_result", "tool_use_id": made["content"][-1]["id"], "content": "rain"}
        history = [*HI, {"role": "assistant", "content": made["content"]}, {"role": "user", "content": [result]}]
        await ask(http, history, **asked)
        sampled = [*engine.generations[0].prompt, *thought("Rain, perhaps.")]
        assert list(engine.generations[1].prompt)[: len(sampled)] == sampled
        history[1]["content"][0]["signature"] += "x"
        reply = await http.post(PATH, json=body(history, **asked))
    assert reply.status_code == 200
    assert reply.headers.get("x-harmonium-items-left-out") == (None if shown else "reasoning")


async def test_a_history_is_the_next_turn_of_its_conversation(inside: Inside, http: httpx.AsyncClient) -> None:
    said: Any = {"system": "Be kind.", "metadata": {"user_id": "ada"}}
    first = await ask(http, [{"role": "user", "content": "My name is Ada."}], **said, thinking=THINKING)
    for content in (first["content"], [first["content"][-1]], text(first)):
        more: Any = [{"role": "assistant", "content": content}, {"role": "user", "content": "What is my name?"}]
        given = folded(await stream(http, [{"role": "user", "content": "My name is Ada."}, *more], **said))
        stored = (await http.get(f"/v1/responses/{given['id'].replace('msg_', 'resp_')}")).json()
        assert stored["previous_response_id"] == first["id"].replace("msg_", "resp_")
        assert "Ada" in text(given)
        assert given["usage"]["cache_read_input_tokens"] > 0
        assert stored["usage"]["input_tokens"] == sum(
            given["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")
        )


@pytest.mark.parametrize(
    "named", [{"previous_response_id": ""}, {"conversation": ""}, {"conversation": {"id": ""}}], ids=str
)
async def test_an_empty_id_names_nothing_rather_than_a_new_conversation(http: httpx.AsyncClient, named: Any) -> None:
    for path in ("responses", "responses/input_tokens", "responses/compact"):
        if "conversation" in named and path.endswith("compact"):
            continue
        reply = await http.post(f"/v1/{path}", json={"model": MODEL, "input": "hi", **named})
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == next(iter(named)), (path, reply.text)


async def test_a_count_is_the_length_of_the_prompt_that_is_made(http: httpx.AsyncClient) -> None:
    asked: Any = {"tools": [WEATHER], "system": "Be kind.", "thinking": THINKING}
    counted = await http.post(f"{PATH}/count_tokens?beta=true", json={"model": MODEL, "messages": HI} | asked)
    usage = (await ask(http, **asked))["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


async def test_the_ends_of_an_answer_have_their_reasons(remembering: Settings) -> None:
    engine = scripted([answer("One. Two. Three.")])
    async with serving(remembering, engine) as inside, inside.http() as http:
        stops = {"stop_sequences": ["Three", "Two"]}
        for made in (await ask(http, **stops), folded(await stream(http, **stops))):
            assert (text(made), made["stop_reason"], made["stop_sequence"]) == ("One. ", "stop_sequence", "Two")
            stored = (await http.get(f"/v1/responses/{made['id'].replace('msg_', 'resp_')}")).json()
            assert stored["harmonium"]["stop"] == "Two"
        assert (await ask(http, max_tokens=1))["stop_reason"] == "max_tokens"
        assert (await ask(http, stop_sequences=["Four"]))["stop_reason"] == "end_turn"


async def test_a_refusal_is_an_error_of_that_api(http: httpx.AsyncClient) -> None:
    for path, more, status, kind, words in (
        ("", {"messages": [{"role": "user", "content": 5}]}, 400, "invalid_request_error", "'messages[0].content'"),
        ("", {"model": "nothing"}, 404, "not_found_error", "nothing"),
        ("", {"messages": [{"role": "user", "content": "x " * 200_000}]}, 400, "invalid_request_error", "too long"),
        ("/count_tokens", {"messages": []}, 400, "invalid_request_error", "messages"),
    ):
        reply = await http.post(PATH + path, json=body(**more))
        told = reply.json()
        assert (reply.status_code, told["type"], told["error"]["type"]) == (status, "error", kind), told
        assert words in told["error"]["message"]
        assert reply.headers["request-id"] == told["request_id"]


async def test_an_error_amid_a_stream_is_an_event_and_whole_it_is_an_answer(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Die(EngineError("it is gone"))])
    async with serving(remembering, engine) as inside, inside.http() as http:
        told = await stream(http)
        whole = await http.post(PATH, json=body())
    assert told[-1]["error"] == {"type": "api_error", "message": "The engine failed: it is gone"}
    assert [event["type"] for event in told[:2]] == ["message_start", "content_block_start"]
    assert (whole.status_code, whole.json()["error"]) == (500, told[-1]["error"])


async def test_the_same_key_has_the_same_answer_again(http: httpx.AsyncClient) -> None:
    asked = body([{"role": "user", "content": RAIN}], tools=[WEATHER], thinking=THINKING)
    first, again = [await http.post(PATH, json=asked, headers={"idempotency-key": "k"}) for _ in range(2)]
    other = await http.post(PATH, json=asked | {"max_tokens": 1}, headers={"idempotency-key": "k"})
    told = [
        folded(events_of((await http.post(PATH, json=asked | {"stream": True}, headers={"idempotency-key": "s"})).text))
        for _ in range(2)
    ]
    assert first.json() == again.json()
    assert (other.status_code, other.json()["type"]) == (422, "error")
    assert told[0] == told[1]


# --- chat completions, by the official client ---

WEATHER_FUNCTION: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
async def client(inside: Inside) -> AsyncIterator[AsyncOpenAI]:
    async with inside.client() as client:
        yield client


async def ask_chat(client: AsyncOpenAI, messages: Any = HI, **more: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=messages, **more)


async def chunks(client: AsyncOpenAI, messages: Any = HI, **more: Any) -> list[Any]:
    return [chunk async for chunk in await ask_chat(client, messages, stream=True, **more)]


def text_of(given: list[Any], member: str = "content") -> str:
    deltas = [chunk.choices[0].delta for chunk in given if chunk.choices]
    return "".join(getattr(delta, member, None) or "" for delta in deltas)


async def test_a_stream_says_what_an_answer_says(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count to 9."}]
    whole: ChatCompletion = await ask_chat(client, messages)
    given = await chunks(client, messages, stream_options={"include_usage": True})
    assert text_of(given) == whole.choices[0].message.content
    assert whole.choices[0].message.model_extra is not None
    assert text_of(given, "reasoning_content") == whole.choices[0].message.model_extra["reasoning_content"]
    assert given[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in given[:-1]] == [None] * (len(given) - 2) + ["stop"]
    assert (given[-1].choices, given[-1].usage.prompt_tokens) == ([], whole.usage.prompt_tokens if whole.usage else 0)
    assert {chunk.id for chunk in given} == {given[0].id}


async def test_a_chat_completion_is_stored_as_a_response_unless_store_is_false(client: AsyncOpenAI) -> None:
    given: ChatCompletion = await ask_chat(client, metadata={"topic": "x"})
    digits = given.id.removeprefix("chatcmpl-")
    stored = await client.responses.retrieve(f"resp_{digits}")
    assert (stored.output_text, stored.metadata) == (given.choices[0].message.content, {"topic": "x"})
    unstored: ChatCompletion = await ask_chat(client, store=False)
    with pytest.raises(APIError, match="not found"):
        await client.responses.retrieve(f"resp_{unstored.id.removeprefix('chatcmpl-')}")


async def test_a_streamed_call_comes_by_its_index_with_its_arguments_in_pieces(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    async with client.chat.completions.stream(model=MODEL, messages=messages, tools=[WEATHER_FUNCTION]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert final.choices[0].finish_reason == "tool_calls"
    (call,) = final.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    assert call.id.startswith("call_")


async def test_an_error_amid_a_stream_is_raised_by_the_client(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Die(EngineError("it is gone"))])
    async with serving(remembering, engine) as inside, inside.client() as client:
        stream = await ask_chat(client, stream=True)
        given = [await anext(stream) for _ in ("the role", *encode("Ahoy"))]
        with pytest.raises(APIError, match="it is gone"):
            await anext(stream)
        with pytest.raises(InternalServerError, match="it is gone"):
            await ask_chat(client)
    assert text_of(given) == "Ahoy"


# --- both, as agents use them ---


REMINDER = "<system-reminder>A file has changed.</system-reminder>"


def following(said: Any) -> list[Any]:
    """The next messages of a client's history: an answer, a reminder, and what came of a call, if there is one."""
    if "choices" in said:
        message = said["choices"][0]["message"]
        outputs = [
            {"role": "tool", "tool_call_id": call["id"], "content": "rain"} for call in message.get("tool_calls", ())
        ]
        return [message, {"role": "system", "content": REMINDER}, *(outputs or HI)]
    called = (block["id"] for block in said["content"] if block["type"] == "tool_use")
    results = [{"type": "tool_result", "tool_use_id": id, "content": "rain"} for id in called]
    heard = {"role": "user", "content": [{"type": "text", "text": REMINDER}, *results]}
    behind = [heard] if results else [{"role": "system", "content": REMINDER}, *HI]
    return [{"role": "assistant", "content": said["content"]}, *behind]


ONE_CALL: Any = {
    PATH: {"tools": [WEATHER | {"strict": False}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    CHAT: {"tools": [{"type": "function", "function": {"name": "get_weather", "strict": False}}]}
    | {"parallel_tool_calls": False},
}
"""A tool that is called once in an answer, in one generation."""


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_reminders_keep_each_prompt_as_the_beginning_of_the_next(
    remembering: Settings, path: str, store: bool
) -> None:
    says = [answer("Hello."), called("get_weather", '{"city":"Paris"}'), answer("Wet."), answer("Bye.")]
    engine = scripted(*([each] for each in says))
    history = HI
    async with serving(remembering, engine) as inside, inside.http() as http:
        for _ in says:
            reply = await http.post(path, json=body(history, store=store, **ONE_CALL[path]))
            history = [*history, *following(reply.json())]
    prompts = [list(generation.prompt) for generation in engine.generations]
    for prompt, said, after in zip(prompts[:-1], says[:-1], prompts[1:], strict=True):
        assert after[: len(prompt) + len(said) - 1] == [*prompt, *said[:-1]]


@pytest.mark.parametrize(("path", "reason"), [(PATH, "max_tokens"), (CHAT, "length")])
async def test_a_call_that_was_cut_is_told_in_whole_characters_and_answered(
    remembering: Settings, path: str, reason: str
) -> None:
    text = "🧭👩‍🚀🜚"
    cut = '{"city": "' + text
    begun = [*thought(text), *then([*opened(text), END]), *then(called("get_weather", cut)[:-1])]
    engine = scripted([begun], [begun], [answer("I see.")])
    asked = body(max_tokens=len(begun), **ONE_CALL[path], **({"thinking": THINKING} if path == PATH else {}))
    async with serving(remembering, engine) as inside, inside.http() as http:
        said = await http.post(path, json=asked)
        told = (await http.post(path, json=asked | {"stream": True})).text
        last = await http.post(path, json=asked | {"messages": [*HI, *following(said.json())]})
    assert len(encode(text)) > len(text)
    assert ("\ufffd" in told, told.count("🧭"), told.count("🜚")) == (False, 3, 3)
    assert all(f'_reason":"{reason}"' in each for each in (said.text, told))
    assert "I see." in last.text
    assert cut in decode(engine.generations[-1].prompt)
