"""Messages of Anthropic's API that are made here, over HTTP: the same runs as all responses have."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.engine.port import EngineError
from service.harmony.tokens import CHANNEL, END, MESSAGE, encode
from service.settings.settings import Settings
from tests.support.engine.scripted import Die, Stall
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.waiting import until

PATH = "/v1/messages"
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HI: Any = [{"role": "user", "content": "hi"}]
CALLED: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "call_9", "name": "f", "input": {}}]}
THINKING: Any = {"type": "enabled", "budget_tokens": 8192}
RAIN = "What is the weather in Paris?"


def body(messages: Any = HI, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 500, "messages": messages, **more}


@pytest.fixture
def remembering(settings: Settings) -> Settings:
    return settings.model_copy(update={"chats": "remembered"})


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


async def test_an_answer_is_a_message_with_its_usage(http: httpx.AsyncClient) -> None:
    reply = await http.post(f"{PATH}?beta=true", json=body([{"role": "user", "content": "Count to 3."}]))
    made = reply.json()
    assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert (made["type"], made["role"], made["model"]) == ("message", "assistant", MODEL)
    assert made["content"] == [{"type": "text", "text": "1\n2\n3"}]
    assert (made["stop_reason"], made["stop_sequence"]) == ("end_turn", None)
    assert made["usage"]["input_tokens"] > 0 < made["usage"]["output_tokens"]


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


async def test_a_tool_is_called_and_its_result_is_read(http: httpx.AsyncClient) -> None:
    messages: Any = [{"role": "user", "content": RAIN}]
    first = await ask(http, messages, tools=[WEATHER])
    (call,) = first["content"]
    assert (first["stop_reason"], call["name"], call["input"]) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "rain"}]}
    messages += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    assert "rain" in text(await ask(http, messages, tools=[WEATHER]))


async def test_a_preamble_a_thought_and_calls_are_blocks_of_one_message(remembering: Settings) -> None:
    preamble = [CHANNEL, *encode("commentary"), MESSAGE, *encode("I look."), END]
    looks = called("look", '{"at": 1.50}')
    look = {"name": "look", "input_schema": {"type": "object"}}
    engine = scripted([[*thought("Hm."), *then(preamble), *then(looks)]])
    async with serving(remembering, engine) as inside, inside.http() as http:
        reply = await http.post(PATH, json=body(tools=[look], thinking=THINKING))
        made = folded(await stream(http, tools=[look], thinking=THINKING))
    assert '"input":{"at": 1.50}' in reply.text
    for blocks in (reply.json()["content"], made["content"]):
        assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
        assert (blocks[0]["thinking"], blocks[1]["text"]) == ("Hm.", "I look.")


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
    assert reply.status_code == 400
    assert "messages[1].content[0].signature" in reply.json()["error"]["message"]


async def test_a_history_is_the_next_turn_of_its_conversation(inside: Inside, http: httpx.AsyncClient) -> None:
    first = await ask(http, [{"role": "user", "content": "My name is Ada."}], system="Be kind.", thinking=THINKING)
    for content in (first["content"], [first["content"][-1]], text(first)):
        more: Any = [{"role": "assistant", "content": content}, {"role": "user", "content": "What is my name?"}]
        given = folded(await stream(http, [{"role": "user", "content": "My name is Ada."}, *more], system="Be brief."))
        stored = (await http.get(f"/v1/responses/{given['id'].replace('msg_', 'resp_')}")).json()
        assert stored["previous_response_id"] == first["id"].replace("msg_", "resp_")
        assert "Ada" in text(given)
        assert given["usage"]["cache_read_input_tokens"] > 0
        assert stored["usage"]["input_tokens"] == sum(
            given["usage"][name] for name in ("input_tokens", "cache_read_input_tokens")
        )


async def test_a_conversation_with_a_document_goes_on_over_another_api(http: httpx.AsyncClient) -> None:
    coded = {"filename": "a.txt", "file_data": "aGk="}
    source = {"type": "text", "media_type": "text/plain", "data": "hi"}
    first = await ask(http, [{"role": "user", "content": [{"type": "document", "title": "a.txt", "source": source}]}])
    told: Any = [{"role": "user", "content": [{"type": "file", "file": coded}]}]
    told += [{"role": "assistant", "content": text(first)}, *HI]
    chat = (await http.post("/v1/chat/completions", json={"model": MODEL, "messages": told})).json()
    stored = (await http.get(f"/v1/responses/{chat['id'].replace('chatcmpl-', 'resp_')}")).json()
    assert stored["previous_response_id"] == first["id"].replace("msg_", "resp_")


async def test_a_refusal_counts_messages_that_were_recognised(http: httpx.AsyncClient) -> None:
    said = {"role": "assistant", "content": (await ask(http))["content"]}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!"}}
    bad = {"role": "user", "content": [{"type": "text", "text": "x"}, image]}
    reply = await http.post(PATH, json=body([*HI, said, bad]))
    assert reply.status_code == 400
    assert "'messages[2].content[1].source'" in reply.json()["error"]["message"]


async def test_a_count_is_the_length_of_the_prompt_that_is_made(http: httpx.AsyncClient) -> None:
    messages: Any = [{"role": "user", "content": RAIN}]
    for _ in range(2):
        asked: Any = {"tools": [WEATHER], "system": "Be kind.", "thinking": THINKING}
        counted = await http.post(f"{PATH}/count_tokens?beta=true", json={"model": MODEL, "messages": messages} | asked)
        made = await ask(http, messages, **asked)
        usage = made["usage"]
        assert counted.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}
        call = made["content"][-1]
        result = {"type": "tool_result", "tool_use_id": call.get("id"), "content": "rain"}
        messages += [{"role": "assistant", "content": made["content"]}, {"role": "user", "content": [result]}]


async def test_an_answer_is_stored_as_a_response_unless_store_is_false(http: httpx.AsyncClient) -> None:
    for store, status in ((None, 200), (False, 404)):
        made = await ask(http, store=store, metadata={"user_id": "me"})
        stored = await http.get(f"/v1/responses/{made['id'].replace('msg_', 'resp_')}")
        assert stored.status_code == status
        assert store is False or stored.json()["user"] == "me"


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
        ("", {"temprature": 1}, 400, "invalid_request_error", "temperature"),
        ("", {"model": "nothing"}, 404, "not_found_error", "nothing"),
        ("", {"messages": [{"role": "user", "content": "x " * 200_000}]}, 400, "invalid_request_error", "too long"),
        ("", {"messages": [*HI, CALLED, *HI]}, 400, "invalid_request_error", "call_9. Send its output, which"),
        ("/count_tokens", {"messages": []}, 400, "invalid_request_error", "messages"),
        ("?beta=true&strange=1", {}, 400, "invalid_request_error", "strange"),
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


async def test_a_quiet_stream_has_pings(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Stall()])
    quiet = remembering.model_copy(update={"keepalive_seconds": 0.05})
    async with (
        serving(quiet, engine) as inside,
        inside.http() as http,
        http.stream("POST", PATH, json=body(stream=True)) as reply,
    ):
        lines = reply.aiter_lines()
        while await anext(lines) != "event: ping":
            pass


async def test_a_client_that_leaves_ends_the_run_and_its_turn_is_stored(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Stall()])
    async with serving(remembering, engine) as inside, inside.http() as http:
        async with http.stream("POST", PATH, json=body(stream=True)) as reply:
            lines = reply.aiter_lines()
            begun = await anext(lines)
            assert begun == "event: message_start"
            id = json.loads((await anext(lines)).removeprefix("data: "))["message"]["id"]
        stored = f"/v1/responses/{id.replace('msg_', 'resp_')}"
        await until(lambda: is_there(http, stored))
        assert (await http.get(stored)).json()["status"] == "cancelled"


async def is_there(http: httpx.AsyncClient, path: str) -> bool:
    return (await http.get(path)).status_code == 200


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


async def test_a_detached_stream_is_a_background_response_told_as_one(http: httpx.AsyncClient) -> None:
    reply = await http.post(PATH, json=body(stream=True), headers={"x-detach": "true"})
    made = folded(events_of(reply.text))
    stored = (await http.get(f"/v1/responses/{made['id'].replace('msg_', 'resp_')}")).json()
    assert (stored["background"], stored["output"][-1]["content"][0]["text"]) == (True, text(made))
