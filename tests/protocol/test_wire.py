"""A create body: what is served, what is harmless, what comes later and is refused by name, and what is unknown."""

from typing import Any

import msgspec
import pytest

from service.protocol.errors import ApiError
from service.protocol.wire import HARMONY_EFFORT, LATER, TIERS, CreateRequest, read_create

BODY = {"model": "m", "input": "Hi"}


def create(**params: Any) -> CreateRequest:
    return read_create(msgspec.json.encode({**BODY, **params}), store=True)


def refusal(body: bytes, *, stores: bool = True) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_create(body, store=stores)
    return caught.value


def refused(**params: Any) -> ApiError:
    return refusal(msgspec.json.encode({**BODY, **params}))


# --- what is served ---


def test_what_is_left_out_has_its_default() -> None:
    request = create()

    assert (request.temperature, request.top_p, request.effort) == (None, None, "medium")
    assert (request.stream, request.store, request.parallel_tool_calls, request.obfuscate) == (False, True, True, True)
    assert (request.instructions, request.previous_response_id) == (None, None)
    assert (request.max_output_tokens, request.max_tool_calls, request.metadata) == (None, None, {})


SERVED: dict[str, Any] = {
    "instructions": "Be brief.",
    "previous_response_id": "resp_1",
    "parallel_tool_calls": False,
    "max_output_tokens": 16,
    "max_tool_calls": 1,
    "temperature": 0,
    "top_p": 0.5,
    "metadata": {"a": "b"},
    "store": False,
    "background": True,
    "stream": True,
    "safety_identifier": "s",
    "prompt_cache_key": "k",
}


@pytest.mark.parametrize(("name", "value"), SERVED.items(), ids=SERVED)
def test_a_served_parameter_is_read(name: str, value: Any) -> None:
    assert getattr(create(**{name: value}), name) == value


@pytest.mark.parametrize(
    "name", [*SERVED, *LATER, "service_tier", "tools", "reasoning", "text", "stream_options", "user"]
)
def test_null_is_the_same_as_leaving_a_parameter_out(name: str) -> None:
    changed = {each: getattr(create(**{name: None}), each) for each in CreateRequest.__struct_fields__}

    assert changed == {each: getattr(create(), each) for each in CreateRequest.__struct_fields__}


@pytest.mark.parametrize("effort", HARMONY_EFFORT)
def test_every_effort_of_the_api_is_read(effort: str) -> None:
    assert create(reasoning={"effort": effort}).effort == effort
    assert HARMONY_EFFORT[effort] in ("low", "medium", "high")


@pytest.mark.parametrize(("asked", "read"), TIERS.items())
def test_every_tier_is_read_as_it_is_served(asked: str, read: str) -> None:
    assert create(service_tier=asked).tier == read
    assert create().tier == TIERS["auto"]


def test_obfuscation_can_be_turned_off_for_a_stream() -> None:
    assert not create(stream=True, stream_options={"include_obfuscation": False}).obfuscate


@pytest.mark.parametrize(
    "name", ["user", "client_metadata", "prompt_cache_retention", "prompt_cache_options", "moderation"]
)
def test_harmless_parameters_are_accepted_whatever_they_hold(name: str) -> None:
    assert create(**{name: {"any": ["thing"]}}).model == "m"


@pytest.mark.parametrize(
    "params",
    [
        {"reasoning": {"summary": None, "context": "auto", "mode": "standard"}},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"text": {}},
        {"reasoning": {}},
    ],
)
def test_members_at_their_defaults_are_accepted(params: dict[str, Any]) -> None:
    assert create(**params).model == "m"


# --- what comes later ---

ASKING: dict[str, Any] = {
    "conversation": "conv_1",
    "context_management": [{"type": "compaction"}],
    "include": ["reasoning.encrypted_content"],
    "prompt": {"id": "pmpt_1"},
    "tool_choice": "required",
    "truncation": "auto",
    "top_logprobs": 5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "image": {},
    "enable_response_messages": True,
    "previous_input_messages": [{}],
    "cache_salt": "s",
    "priority": 1,
    "request_id": "r",
    "seed": 0,
    "top_k": 5,
    "min_p": 0.1,
    "stop": ["\n"],
    "repetition_penalty": 1.1,
}


def test_every_later_parameter_is_tried() -> None:
    assert set(ASKING) == set(LATER)


@pytest.mark.parametrize(("name", "value"), ASKING.items(), ids=ASKING)
def test_a_later_parameter_is_refused_by_name(name: str, value: Any) -> None:
    error = refused(**{name: value})

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert "leave it out" in error.message


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, harmless in LATER.items() for value in harmless], ids=str
)
def test_a_later_parameter_at_its_default_is_accepted(name: str, value: Any) -> None:
    assert create(**{name: value}).model == "m"


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"generate_summary": "concise"}}, "reasoning.summary"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ],
)
def test_a_later_member_is_refused_by_name(params: dict[str, Any], param: str) -> None:
    error = refused(**params)

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)


# --- what is refused ---

REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "an unknown parameter": ({"inputs": 1}, "unknown_parameter", "inputs", "Check its spelling"),
    "an unknown member": ({"reasoning": {"depth": 1}}, "unknown_parameter", "reasoning.depth", "reasoning.depth"),
    "no model": ({"model": None}, "missing_required_parameter", "model", "/v1/models"),
    "a number as the model": ({"model": 5}, "invalid_type", "model", "expected a string or null, but got an integer"),
    "no input": ({"input": None}, "missing_required_parameter", "input", "previous_response_id"),
    "a temperature too high": ({"temperature": 2.1}, "invalid_value", "temperature", "2.1"),
    "a temperature below zero": ({"temperature": -1}, "invalid_value", "temperature", "-1"),
    "a text as the temperature": ({"temperature": "hot"}, "invalid_type", "temperature", '"hot"'),
    "a top_p too high": ({"top_p": 1.5}, "invalid_value", "top_p", "1.5"),
    "too few output tokens": ({"max_output_tokens": 15}, "invalid_value", "max_output_tokens", "16"),
    "half an output token": ({"max_output_tokens": 16.5}, "invalid_type", "max_output_tokens", "16.5"),
    "true as output tokens": ({"max_output_tokens": True}, "invalid_type", "max_output_tokens", "a boolean"),
    "no tool calls": ({"max_tool_calls": 0}, "invalid_value", "max_tool_calls", "1"),
    "a text as stream": ({"stream": "yes"}, "invalid_type", "stream", "a boolean"),
    "a number as store": ({"store": 1}, "invalid_type", "store", "a boolean"),
    "an unknown effort": ({"reasoning": {"effort": "heroic"}}, "invalid_value", "reasoning.effort", "heroic"),
    "a list as instructions": ({"instructions": ["a"]}, "invalid_type", "instructions", "an array"),
    "metadata that is a list": ({"metadata": []}, "invalid_type", "metadata", "an object"),
    "metadata of numbers": ({"metadata": {"a": 1}}, "invalid_type", "metadata", "a string"),
    "too much metadata": ({"metadata": {str(i): "" for i in range(17)}}, "invalid_value", "metadata", "17"),
    "a long key of metadata": ({"metadata": {"k" * 65: ""}}, "invalid_value", "metadata", "64"),
    "a long value of metadata": ({"metadata": {"a": "v" * 513}}, "invalid_value", "metadata.a", "512"),
    "a text as background": ({"background": "yes"}, "invalid_type", "background", "a boolean"),
    "a background that is not stored": (
        {"background": True, "store": False},
        "unsupported_parameter",
        "background",
        "has to be stored",
    ),
    "a number as the tier": ({"service_tier": 1}, "invalid_type", "service_tier", "a string"),
    "a tier of somebody else": ({"service_tier": "scale"}, "invalid_value", "service_tier", "flex"),
    "stream options without stream": ({"stream_options": {}}, "invalid_value", "stream_options", "'stream': true"),
    "a long safety identifier": ({"safety_identifier": "s" * 129}, "invalid_value", "safety_identifier", "128"),
}


@pytest.mark.parametrize(("params", "code", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_a_bad_parameter_is_refused_by_name(params: dict[str, Any], code: str, param: str, words: str) -> None:
    error = refused(**params)

    assert (error.status, error.type, error.code, error.param) == (400, "invalid_request_error", code, param)
    assert words in error.message
    assert len(error.message) < 300


DEEP = b"[" * 100_000 + b"]" * 100_000
NOT_JSON: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "truncated"),
    "half of it": (b'{"model":"m"', "truncated"),
    "a comma too many": (b'{"model":"\\ud83d\\ude42",}', "malformed"),
    "NaN": (b'{"temperature":NaN}', "malformed"),
    "a lone surrogate": (b'{"model":"\\udc00"}', "surrogate"),
    "a lone surrogate at the end": (b'{"model":"\\ud800"}', "surrogate"),
    "no UTF-8": (b'{"model":"\xff"}', "UTF-8"),
    "an encoded surrogate": (b'{"model":"\xed\xa0\x80"}', "UTF-8"),
    "100,000 levels": (b'{"model":"m","input":' + DEEP + b"}", "nested too deeply"),
    "100,000 levels of no meaning": (b'{"model":"m","input":"Hi","user":' + DEEP + b"}", "nested too deeply"),
}


@pytest.mark.parametrize(("body", "words"), NOT_JSON.values(), ids=NOT_JSON)
def test_a_body_that_is_no_json_is_refused_with_the_reason(body: bytes, words: str) -> None:
    error = refusal(body)

    assert (error.status, error.code, error.param) == (400, "invalid_json", None)
    assert words in error.message
    assert ("surrogate" in error.message) == ("surrogate" in words)


@pytest.mark.parametrize("body", [b"[]", b'"Hi"', b"5", b"null", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    assert (refusal(body).code, refusal(body).param) == ("invalid_type", None)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"store": True}, "store"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"background": True}, "background"),
    ],
)
def test_a_service_that_stores_nothing_says_so(params: dict[str, Any], param: str) -> None:
    error = refusal(msgspec.json.encode({**BODY, **params}), stores=False)

    assert (error.code, error.param) == ("unsupported_parameter", param)


def test_a_service_that_stores_nothing_takes_requests_that_store_nothing() -> None:
    assert not read_create(msgspec.json.encode(BODY), store=False).store


@pytest.mark.parametrize("stores", [True, False])
def test_what_is_not_stored_may_be_in_the_background_where_that_is_allowed(stores: bool) -> None:
    body = msgspec.json.encode({**BODY, "background": True, "store": False})
    request = read_create(body, store=stores, unstored_background=True)

    assert (request.background, request.store) == (True, False)
