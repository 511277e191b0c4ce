"""Anthropic's client for Python, with messages that are made by the service."""

import json
import os

from anthropic import Anthropic, APIStatusError, AsyncAnthropic, BadRequestError, NotFoundError

MODEL = os.environ["MODEL"]
URL = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
client = Anthropic(base_url=URL, api_key="none", max_retries=0)
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
RAIN = "What is the weather in Paris? Use the tool."
THINKING = {"type": "enabled", "budget_tokens": 2048}


def asked(said, **more):
    """A request."""
    return {"model": MODEL, "max_tokens": 4096, "messages": [{"role": "user", "content": said}], **more}


def test_a_message_has_its_text_its_usage_and_its_id():
    message = client.messages.create(**asked("Count to 3.", system="Be short.", metadata={"user_id": "u"}))
    assert (message.content[0].text, message.stop_reason) == ("1\n2\n3", "end_turn")
    assert message.usage.input_tokens > 0 < message.usage.output_tokens
    assert message._request_id.startswith("req_")
    assert message.id.startswith("msg_")


def test_a_stream_adds_up_to_the_same_message():
    request = asked("Count to 4.", thinking=THINKING)
    with client.messages.stream(**request) as stream:
        written = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    whole = client.messages.create(**request)
    assert written == "1\n2\n3\n4"
    thoughts = [[(block.type, getattr(block, "thinking", "")) for block in made.content] for made in (streamed, whole)]
    assert thoughts[0] == thoughts[1]
    assert thoughts[0][0][1]
    assert streamed.content[0].signature.startswith("hs_")
    assert streamed.usage.output_tokens == whole.usage.output_tokens


async def test_a_stream_can_be_left():
    async with AsyncAnthropic(base_url=URL, api_key="none", max_retries=0) as other:
        async with await other.messages.create(**asked("Count to 100.", stream=True)) as stream:
            async for event in stream:
                if event.type == "content_block_delta":
                    break
        assert (await other.messages.create(**asked("Count to 1."))).content[0].text == "1"


def test_a_tool_is_called_with_thinking_and_its_result_is_read():
    request = asked(RAIN, tools=[WEATHER], thinking=THINKING)
    with client.messages.stream(**request) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    thought, call = message.content
    assert (message.stop_reason, thought.type, call.name) == ("tool_use", "thinking", "get_weather")
    assert json.loads("".join(pieces)) == call.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    request["messages"] += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    counted = client.messages.count_tokens(
        **{name: request[name] for name in ("model", "messages", "tools", "thinking")}
    )
    answer = client.messages.create(**request)
    assert "18 degrees" in answer.content[-1].text
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def refused(kind, **request):
    """The error of a request that isn't answered."""
    try:
        client.messages.create(**request)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def test_refusals_are_errors_of_the_client():
    wrong = refused(BadRequestError, **asked("hello", extra_body={"temprature": 1}))
    assert (wrong.body["error"]["type"], bool(wrong.request_id)) == ("invalid_request_error", True)
    nowhere = refused(NotFoundError, **asked("hello") | {"model": "nothing"})
    assert nowhere.body["error"]["type"] == "not_found_error"
    tool = refused(APIStatusError, **asked("hello", tools=[{"name": "look"}]))
    assert "tools[0].input_schema" in tool.body["error"]["message"]


def test_the_models_are_listed_and_found():
    (model, *_) = listed = list(client.models.list(limit=1))
    assert MODEL in [each.id for each in listed]
    assert client.models.retrieve(model.id, extra_query={"beta": "true"}) == model
    assert model.max_input_tokens > 0
    assert model.created_at.tzinfo
