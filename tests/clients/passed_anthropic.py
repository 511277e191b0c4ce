"""Anthropic's client for Python, with messages, which are passed on to a stand-in that says what it is told."""

import os

from anthropic import Anthropic, AuthenticationError, BadRequestError, NotFoundError

MODEL = os.environ["MODEL"]
client = Anthropic(max_retries=0)
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
WANTED = 'Use get_weather: {"city": "Paris"}'


def asked(said, **more):
    """A request."""
    return {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": said}], **more}


def test_a_message_has_its_text_and_its_usage():
    message = client.messages.create(**asked("hello you", system="Be short.", metadata={"user_id": "u"}))
    assert (message.content[0].text, message.stop_reason) == ("hello you", "end_turn")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 2)


def test_a_stream_adds_up_to_the_same_message():
    with client.messages.stream(**asked("one two three")) as stream:
        written = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert message.content[0].text == written == "one two three "
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 3)


def test_a_tool_is_called_and_its_result_is_read():
    request = asked(WANTED, tools=[WEATHER], tool_choice={"type": "auto"})
    message = client.messages.create(**request)
    (call,) = message.content
    assert (message.stop_reason, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    request["messages"] += [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(**request).content[0].text == "18 degrees"


def test_tokens_are_counted():
    messages = asked("hello")["messages"]
    assert client.messages.count_tokens(model=MODEL, messages=messages, tools=[WEATHER]).input_tokens == 7
    assert client.beta.messages.count_tokens(model=MODEL, messages=messages).input_tokens == 7


def refused(kind, client, request):
    """The error of a request that isn't answered."""
    try:
        client.messages.create(**request)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def test_refusals_are_errors_of_the_clients():
    wrong = refused(BadRequestError, client, asked("hello", extra_body={"temprature": 1}))
    assert (wrong.body["error"]["type"], bool(wrong.request_id)) == ("invalid_request_error", True)
    nowhere = refused(NotFoundError, client, asked("hello") | {"model": "nothing"})
    assert nowhere.body["error"]["type"] == "not_found_error"
    stranger = refused(AuthenticationError, Anthropic(api_key="no", max_retries=0), asked("hello"))
    assert stranger.body["error"]["type"] == "authentication_error"
