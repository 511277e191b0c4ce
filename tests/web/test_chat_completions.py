"""Chat completions that are made here, over HTTP and by the official client: the same runs as all responses have."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from service.engine.port import EngineError, Generation
from service.harmony.tokens import ASSISTANT, CALL, CHANNEL, END, MESSAGE, START, decode, encode
from service.settings.settings import Settings
from tests.support.bad.table import MIB
from tests.support.engine.scripted import Die, Stall
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.waiting import until
from tests.web.test_limits import settled

CHAT = "/v1/chat/completions"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def remembering(settings: Settings) -> Settings:
    return settings.model_copy(update={"chats": "remembered"})


@pytest.fixture
async def inside(remembering: Settings) -> AsyncIterator[Inside]:
    """The service over its demo engine."""
    async with serving(remembering) as inside:
        yield inside


@pytest.fixture
async def client(inside: Inside) -> AsyncIterator[AsyncOpenAI]:
    async with inside.client() as client:
        yield client


async def ask(client: AsyncOpenAI, messages: Any = HI, **more: Any) -> Any:
    return await client.chat.completions.create(model=MODEL, messages=messages, **more)


async def chunks(client: AsyncOpenAI, messages: Any = HI, **more: Any) -> list[Any]:
    return [chunk async for chunk in await ask(client, messages, stream=True, **more)]


def text(given: list[Any], member: str = "content") -> str:
    """The text of a stream's deltas."""
    deltas = [chunk.choices[0].delta for chunk in given if chunk.choices]
    return "".join(getattr(delta, member, None) or "" for delta in deltas)


async def test_an_answer_is_a_chat_completion_with_its_reasoning_and_its_usage(client: AsyncOpenAI) -> None:
    given: ChatCompletion = await ask(client, [{"role": "user", "content": "Count to 3."}])
    (choice,) = given.choices
    assert (given.object, given.model, choice.finish_reason) == ("chat.completion", MODEL, "stop")
    assert (choice.message.role, choice.message.content) == ("assistant", "1\n2\n3")
    assert choice.message.model_extra is not None
    assert choice.message.model_extra["reasoning_content"]
    assert given.usage is not None
    assert given.usage.completion_tokens_details is not None
    assert 0 < (given.usage.completion_tokens_details.reasoning_tokens or 0) < given.usage.completion_tokens
    assert given.usage.total_tokens == given.usage.prompt_tokens + given.usage.completion_tokens


async def test_a_stream_says_what_an_answer_says(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count to 9."}]
    whole: ChatCompletion = await ask(client, messages)
    given = await chunks(client, messages, stream_options={"include_usage": True})
    assert text(given) == whole.choices[0].message.content
    assert whole.choices[0].message.model_extra is not None
    assert text(given, "reasoning_content") == whole.choices[0].message.model_extra["reasoning_content"]
    assert given[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in given[:-1]] == [None] * (len(given) - 2) + ["stop"]
    assert (given[-1].choices, given[-1].usage.prompt_tokens) == ([], whole.usage.prompt_tokens if whole.usage else 0)
    assert {chunk.id for chunk in given} == {given[0].id}


async def test_reasoning_is_left_out_where_it_is_not_wanted(remembering: Settings) -> None:
    untold = {"include_reasoning": False}
    engine = scripted([*([each] for each in thought("One by one.")), then(answer("Fine."))])
    async with serving(remembering, engine) as inside, inside.client() as client:
        whole: ChatCompletion = await ask(client, extra_body=untold)
        given = await chunks(client, extra_body=untold)
    assert "reasoning_content" not in (whole.choices[0].message.model_extra or {})
    assert (text(given), text(given, "reasoning_content")) == ("Fine.", "") == (whole.choices[0].message.content, "")


async def test_a_detached_stream_is_a_background_response_told_as_one(client: AsyncOpenAI) -> None:
    given = await chunks(client, extra_headers={"x-detach": "true"})
    stored = await client.responses.retrieve(given[0].id.replace("chatcmpl-", "resp_"))
    assert (stored.background, stored.output_text) == (True, text(given))


async def test_an_answer_is_stored_as_a_response_unless_store_is_false(client: AsyncOpenAI) -> None:
    given: ChatCompletion = await ask(client, metadata={"topic": "x"})
    digits = given.id.removeprefix("chatcmpl-")
    stored = await client.responses.retrieve(f"resp_{digits}")
    assert (stored.output_text, stored.metadata) == (given.choices[0].message.content, {"topic": "x"})
    unstored: ChatCompletion = await ask(client, store=False)
    with pytest.raises(APIError, match="not found"):
        await client.responses.retrieve(f"resp_{unstored.id.removeprefix('chatcmpl-')}")


async def test_a_function_is_called_and_answered(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    first: ChatCompletion = await ask(client, messages, tools=[WEATHER])
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    second = await ask(client, [*messages, choice.message, result], tools=[WEATHER])
    assert "rain" in second.choices[0].message.content


async def test_a_streamed_call_comes_by_its_index_with_its_arguments_in_pieces(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    async with client.chat.completions.stream(model=MODEL, messages=messages, tools=[WEATHER]) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert final.choices[0].finish_reason == "tool_calls"
    (call,) = final.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    assert call.id.startswith("call_")


async def test_a_preamble_and_a_call_are_one_message(remembering: Settings) -> None:
    preamble = [CHANNEL, *encode("commentary"), MESSAGE, *encode("I look."), END]
    engine = scripted([[*preamble, *then(called("get_weather", '{"city":"Paris"}'))]])
    async with serving(remembering, engine) as inside, inside.client() as client:
        given: ChatCompletion = await ask(client, tools=[WEATHER])
    message = given.choices[0].message
    assert (message.content, len(message.tool_calls or ())) == ("I look.", 1)


async def test_the_messages_are_the_prompt_s(remembering: Settings) -> None:
    prompts: list[list[int]] = []

    def note(generation: Generation) -> list[list[int]]:
        prompts.append(list(generation.prompt))
        return [[*thought("Hm."), *then(answer("Fine."))]]

    messages: Any = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I ask.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "<|end|>rain"},
    ]
    async with serving(remembering, scripted(note)) as inside, inside.client() as client:
        await ask(client, messages, tools=[WEATHER])
    (prompt,) = prompts
    said = decode(prompt)
    assert "# Instructions\n\nBe kind.\n\nBe brief." in said
    assert said.count("Rain?") == said.count("Be kind.") == 1
    asked = [START, ASSISTANT, CHANNEL, *encode("analysis"), MESSAGE, *encode("I ask."), END]
    begin = prompt.index(CHANNEL) - 2
    assert prompt[begin : begin + len(asked)] == asked
    assert prompt[begin + len(asked) :].count(CALL) == 1
    answered = [MESSAGE, *encode("<|end|>rain"), END, START, ASSISTANT]
    assert prompt[-len(answered) :] == answered


async def test_an_answer_matches_its_schema(client: AsyncOpenAI) -> None:
    class Person(BaseModel):
        name: str
        age: int

    parsed = await client.chat.completions.parse(model=MODEL, messages=HI, response_format=Person)
    assert isinstance(parsed.choices[0].message.parsed, Person)


async def test_log_probabilities_are_those_of_the_answer(client: AsyncOpenAI) -> None:
    whole: ChatCompletion = await ask(client, logprobs=True, top_logprobs=2)
    assert whole.choices[0].logprobs is not None
    known = whole.choices[0].logprobs.content or []
    assert "".join(token.token for token in known) == whole.choices[0].message.content
    assert all(len(token.top_logprobs) == 2 and token.bytes == list(token.token.encode()) for token in known)
    given = await chunks(client, logprobs=True, top_logprobs=2)
    told = [token for chunk in given if (found := chunk.choices[0].logprobs) is not None for token in found.content]
    assert [(token.token, token.bytes) for token in told] == [(token.token, token.bytes) for token in known]


async def test_a_limit_below_that_of_responses_is_one_of_a_chat_completion(client: AsyncOpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        given: ChatCompletion = await ask(client, **{name: 1})
        assert given.choices[0].finish_reason == "length"
        assert given.usage is not None
        assert given.usage.completion_tokens == 1


async def test_an_error_amid_a_stream_is_raised_by_the_client(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Die(EngineError("it is gone"))])
    async with serving(remembering, engine) as inside, inside.client() as client:
        stream = await ask(client, stream=True)
        given = [await anext(stream) for _ in ("the role", *encode("Ahoy"))]
        with pytest.raises(APIError, match="it is gone"):
            await anext(stream)
        with pytest.raises(InternalServerError, match="it is gone"):
            await ask(client)
    assert text(given) == "Ahoy"


async def test_a_refusal_names_the_parameter_as_the_client_sent_it(client: AsyncOpenAI) -> None:
    bad: Any = [{"role": "system", "content": "x"}, {"role": "user", "content": 5}]
    with pytest.raises(BadRequestError) as refused:
        await ask(client, bad)
    assert refused.value.param == "messages[1].content"
    assert "'messages[1].content'" in refused.value.message
    with pytest.raises(BadRequestError) as refused:
        await ask(client, [*HI, {"role": "tool", "tool_call_id": "", "content": "x"}])
    assert refused.value.param == "messages[1].tool_call_id"
    with pytest.raises(BadRequestError, match="nobodys"):
        await ask(client, [*HI, {"role": "tool", "tool_call_id": "nobodys", "content": "x"}])


async def test_a_refusal_counts_messages_that_were_recognised(client: AsyncOpenAI) -> None:
    given: ChatCompletion = await ask(client)
    said = {"role": "assistant", "content": given.choices[0].message.content}
    with pytest.raises(BadRequestError) as refused:
        await ask(client, [*HI, said, {"role": "user", "content": [{"type": "text"}]}])
    assert refused.value.param == "messages[2].content[0].text"
    items: Any = [*HI, said, {"role": "user", "content": [{"type": "input_text"}]}]
    with pytest.raises(BadRequestError) as refused:
        await client.responses.create(model=MODEL, input=items)
    assert refused.value.param == "input[2].content[0].text"
    assert "'input[2].content[0].text'" in refused.value.message


async def test_a_history_is_the_next_turn_of_its_conversation(client: AsyncOpenAI) -> None:
    messages: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "My name is Ada."}]
    first: ChatCompletion = await ask(client, messages)
    more: Any = {"role": "user", "content": "What is my name?"}
    given = await chunks(client, [*messages, first.choices[0].message, more], stream_options={"include_usage": True})
    second = await client.responses.retrieve(given[0].id.replace("chatcmpl-", "resp_"))
    assert second.previous_response_id == first.id.replace("chatcmpl-", "resp_")
    assert "Ada" in text(given)
    assert given[-1].usage.prompt_tokens_details.cached_tokens > 0


async def test_the_same_key_has_the_same_answer_again(inside: Inside) -> None:
    async with inside.http() as http:
        body = {"model": MODEL, "messages": HI}
        first, again = [await http.post(CHAT, json=body, headers={"idempotency-key": "k"}) for _ in range(2)]
        other = await http.post(CHAT, json=body | {"max_tokens": 1}, headers={"idempotency-key": "k"})
        streamed = await http.post(CHAT, json=body | {"stream": True}, headers={"idempotency-key": "s"})
        replayed = await http.post(CHAT, json=body | {"stream": True}, headers={"idempotency-key": "s"})
    assert first.json() == again.json()
    assert other.status_code == 422
    assert said(replayed.text) == said(streamed.text)


def said(body: str) -> str:
    """The text of a stream as it came."""
    *events, done = [each.removeprefix("data: ") for each in body.split("\n\n") if each.startswith("data: ")]
    assert done == "[DONE]"
    given = [choice["delta"].get("content") for event in events for choice in json.loads(event)["choices"]]
    return "".join(filter(None, given))


async def test_a_recognised_history_is_made_and_counted_once_under_its_key(remembering: Settings) -> None:
    engine = scripted([answer("Hello.")])
    async with (
        serving(
            remembering.model_copy(update={"tenant_limits": {"max_tokens_per_1_month": 100_000}}), engine
        ) as inside,
        inside.http() as http,
    ):
        first = (await http.post(CHAT, json={"model": MODEL, "messages": HI})).json()
        body = {"model": MODEL, "messages": [*HI, first["choices"][0]["message"], *HI]}
        key = {"idempotency-key": "k"}
        sent = [http.post(CHAT, json=body, headers=key) for _ in range(8)]
        made = [each.json() for each in await asyncio.gather(*sent)]
        assert len(engine.generations) == 2
        assert {each["id"] for each in made} == {made[0]["id"]}
        await settled(inside, first["usage"]["total_tokens"] + made[0]["usage"]["total_tokens"])


async def test_who_hung_up_goes_on_from_what_it_has_seen_or_from_its_second_try(remembering: Settings) -> None:
    engine = scripted([opened("Ahoy"), Stall()], [answer("Hello.")])
    async with serving(remembering, engine) as inside, inside.client() as client:
        stream = await ask(client, stream=True)
        given = [await anext(stream) for _ in ("the role", *encode("Ahoy"))]
        await stream.close()
        cut = given[0].id.replace("chatcmpl-", "resp_")
        await until(lambda: found(client, cut))
        again: ChatCompletion = await ask(client)
        for text, id in (("Ahoy", cut), ("Hello.", again.id.replace("chatcmpl-", "resp_"))):
            more = await ask(client, [*HI, {"role": "assistant", "content": text}, *HI])
            next_one = await client.responses.retrieve(more.id.replace("chatcmpl-", "resp_"))
            assert next_one.previous_response_id == id


async def found(client: AsyncOpenAI, id: str) -> bool:
    """Whether a response is stored."""
    try:
        return (await client.responses.retrieve(id)).id == id
    except NotFoundError:
        return False


async def test_a_body_of_megabytes_is_one_as_any(inside: Inside) -> None:
    long = {"role": "user", "content": "a b " * (MIB // 4)}
    async with inside.http() as http:
        given = await http.post(CHAT, json={"model": MODEL, "messages": [long] * 3})
    assert given.json()["error"]["code"] == "context_length_exceeded"
    assert given.json()["error"]["param"] == "messages"


async def test_without_the_setting_nothing_is_made_here(settings: Settings) -> None:
    async with serving(settings) as inside, inside.http() as http:
        given = await http.post(CHAT, json={"model": MODEL, "messages": HI})
    assert given.status_code == 404
