"""A create body: what is served, what is harmless, what comes later and is refused by name, and what is unknown."""

import json
from typing import Any

import msgspec
import pytest

from service.api.request import HARMONY_EFFORT, TIERS, UNSERVED, CreateRequest, read_create
from service.errors import ApiError

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
    "truncation": "auto",
    "top_logprobs": 20,
    "conversation": "conv_1",
    "cache_salt": "s",
    "priority": -3,
    "request_id": "job-7:a.b_c",
}


@pytest.mark.parametrize(("name", "value"), SERVED.items(), ids=SERVED)
def test_a_served_parameter_is_read(name: str, value: Any) -> None:
    assert getattr(create(**{name: value}), name) == value


@pytest.mark.parametrize(
    "name", [*SERVED, *UNSERVED, "service_tier", "tools", "reasoning", "text", "stream_options", "user"]
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
    ("name", "value"),
    [
        ("client_metadata", {"any": ["thing"]}),
        ("prompt_cache_retention", "24h"),
        ("prompt_cache_options", {"mode": "explicit", "ttl": "12h"}),
    ],
)
def test_what_has_a_meaning_to_openai_alone_is_accepted(name: str, value: object) -> None:
    assert create(**{name: value}).model == "m"


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


# --- what isn't served ---


@pytest.mark.parametrize(("name", "harmless"), [(name, value) for name, (value, _) in UNSERVED.items()], ids=UNSERVED)
def test_what_is_not_served_is_harmless_at_its_default_and_else_refused_by_name(name: str, harmless: bytes) -> None:
    assert create(**{name: json.loads(harmless)}).model == "m"
    error = refused(**{name: {"any": ["thing"]}})

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert UNSERVED[name][1] in error.message


def test_a_mode_of_reasoning_that_no_model_here_has_is_refused_by_name() -> None:
    error = refused(reasoning={"mode": "pro"})

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "reasoning.mode")


def test_members_of_reasoning_and_text_are_read() -> None:
    request = create(reasoning={"summary": "concise", "context": "all_turns"}, text={"verbosity": "low"})

    assert (request.summary, request.thoughts, request.verbosity) == ("concise", "all_turns", "low")
    assert create(reasoning={"generate_summary": "auto"}).summary == "auto"


def test_parameters_of_sampling_are_read_and_what_is_not_said_is_the_model_s() -> None:
    sampling = create(seed=7, top_k=-1, min_p=0.1, presence_penalty=-2, repetition_penalty=1.5).sampling

    assert (sampling.seed, sampling.top_k, sampling.min_p, sampling.presence_penalty) == (7, 0, 0.1, -2)
    assert (sampling.repetition_penalty, sampling.frequency_penalty) == (1.5, 0)
    assert (create().sampling.top_k, create().sampling.min_p, create().sampling.repetition_penalty) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize(("sent", "read"), [("a", ("a",)), (["a", "b"], ("a", "b")), ([], ()), (None, ())])
def test_stops_are_read(sent: Any, read: tuple[str, ...]) -> None:
    assert create(stop=sent).stop == read


def test_log_probabilities_are_shown_where_they_are_asked_for() -> None:
    assert create(include=["message.output_text.logprobs"], top_logprobs=3).shows_logprobs
    assert not create(top_logprobs=3).shows_logprobs


def test_a_stored_prompt_may_be_all_the_input_there_is() -> None:
    request = create(input=None, prompt={"id": "pmpt_1", "variables": {"name": "Alice"}})

    assert request.prompt is not None
    assert request.prompt.id == "pmpt_1"


# --- what is refused ---

REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "an unknown parameter": ({"rhubarb": 1}, "unknown_parameter", "rhubarb", "Check its spelling"),
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
    "metadata of numbers": ({"metadata": {"a": 1}}, "invalid_type", "metadata.a", "a string"),
    "too much metadata": ({"metadata": {str(i): "" for i in range(17)}}, "invalid_value", "metadata", "17"),
    "a long key of metadata": ({"metadata": {"k" * 65: ""}}, "invalid_value", "metadata", "64"),
    "a long value of metadata": ({"metadata": {"a": "v" * 513}}, "invalid_value", "metadata.a", "512"),
    "a text as background": ({"background": "yes"}, "invalid_type", "background", "a boolean"),
    "a background that is not stored": (
        {"background": True, "store": False},
        "unsupported_parameter",
        "background",
        "can only be used when `store` is true",
    ),
    "an unknown include": ({"include": ["everything"]}, "invalid_value", "include[0]", "message.output_text.logprobs"),
    "an unknown truncation": ({"truncation": "middle"}, "invalid_value", "truncation", "disabled"),
    "too many top logprobs": ({"top_logprobs": 21}, "invalid_value", "top_logprobs", "20"),
    "too high a penalty": ({"presence_penalty": 2.5}, "invalid_value", "presence_penalty", "2"),
    "a repetition penalty of nothing": ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty", "0"),
    "a seed that is a text": ({"seed": "x"}, "invalid_type", "seed", "an integer"),
    "a seed beyond 64 bits": ({"seed": 2**63}, "invalid_value", "seed", "9223372036854775808"),
    "too small a top_k": ({"top_k": -2}, "invalid_value", "top_k", "-2"),
    "too high a min_p": ({"min_p": 2}, "invalid_value", "min_p", "2"),
    "an empty stop": ({"stop": ""}, "invalid_value", "stop", "256"),
    "too many stops": ({"stop": ["x"] * 17}, "invalid_value", "stop", "16"),
    "a stop that is a number": ({"stop": 7}, "invalid_type", "stop", "7"),
    "an empty salt": ({"cache_salt": ""}, "invalid_value", "cache_salt", "1"),
    "a priority beyond reason": ({"priority": 2**31}, "invalid_value", "priority", "2147483648"),
    "a request id with a space": ({"request_id": "a b"}, "invalid_value", "request_id", "a b"),
    "a stored prompt without an id": ({"prompt": {}}, "missing_required_parameter", "prompt.id", "prompt.id"),
    "an unknown verbosity": ({"text": {"verbosity": "huge"}}, "invalid_value", "text.verbosity", "huge"),
    "an unknown summary": ({"reasoning": {"summary": "long"}}, "invalid_value", "reasoning.summary", "long"),
    "both ways of continuing": (
        {"previous_response_id": "resp_1", "previous_input_messages": [{}]},
        "invalid_value",
        "previous_input_messages",
        "previous_response_id",
    ),
    "a number as the tier": ({"service_tier": 1}, "invalid_type", "service_tier", "a string"),
    "a tier of somebody else": ({"service_tier": "gold"}, "invalid_value", "service_tier", "flex"),
    "stream options without stream": ({"stream_options": {}}, "invalid_value", "stream_options", "'stream': true"),
    "a long safety identifier": ({"safety_identifier": "s" * 129}, "invalid_value", "safety_identifier", "128"),
}


@pytest.mark.parametrize(("params", "code", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_a_bad_parameter_is_refused_by_name(params: dict[str, Any], code: str, param: str, words: str) -> None:
    error = refused(**params)

    assert (error.status, error.type, error.code, error.param) == (400, "invalid_request_error", code, param)
    assert words in error.message
    assert len(error.message) < 400


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
    "100,000 levels of no meaning": (
        b'{"model":"m","input":"Hi","client_metadata":' + DEEP + b"}",
        "nested too deeply",
    ),
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


def test_a_deep_value_of_a_wrong_type_is_refused_by_its_name() -> None:
    error = refusal(b'{"input":"Hi","model":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    assert (error.code, error.param) == ("invalid_type", "model")


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
