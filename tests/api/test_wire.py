"""A create body: what is served, what is harmless, what comes later and is refused by name, and what is unknown."""

import json
from typing import Any, get_type_hints

import msgspec
import pytest
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import BackgroundOptions, ResponseCreateParamsStreaming
from openai.types.responses.responses_client_event_param import ResponseCreate

from service.api.request import (
    UNSERVED,
    BackgroundParam,
    CreateBody,
    CreateFrame,
    CreateRequest,
    read_create,
)
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
    "name",
    [*SERVED, *UNSERVED, "service_tier", "tools", "reasoning", "text", "stream_options", "user", "background_options"],
)
def test_null_is_the_same_as_leaving_a_parameter_out(name: str) -> None:
    changed = {each: getattr(create(**{name: None}), each) for each in CreateRequest.__struct_fields__}

    assert changed == {each: getattr(create(), each) for each in CreateRequest.__struct_fields__}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (ResponseCreateParamsStreaming, CreateBody),
        (ResponseCompactParams, CreateBody),
        (InputTokenCountParams, CreateBody),
        (ResponseCreate, CreateFrame),
        (BackgroundOptions, BackgroundParam),
    ],
)
def test_every_parameter_of_the_sdk_is_known(theirs: type, ours: Any) -> None:
    assert set(get_type_hints(theirs)) - set(ours.__struct_fields__) == set()


@pytest.mark.parametrize(("window", "tier"), [("soonest", "flex"), ("2h", "auto"), ("8h", "default"), (None, None)])
def test_a_completion_window_is_read(window: str | None, tier: str | None) -> None:
    options = {"completion_window": window, "continuation_id": "nightly"}
    request = create(background=True, service_tier=tier, background_options=options)

    assert (request.window, request.continuation_id) == (window or "soonest", "nightly")
    assert (create(background_options={}).window, create().continuation_id) == ("soonest", None)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "'background': true"),
        ({"background": True, "stream": True}, "without 'stream'"),
        ({"background": True, "service_tier": "flex"}, "'service_tier'"),
        ({"background": True, "service_tier": "fast"}, "'service_tier'"),
    ],
)
@pytest.mark.parametrize("window", ["2h", "8h"])
def test_a_window_that_ends_later_is_for_the_background_alone(window: str, params: dict[str, Any], words: str) -> None:
    error = refused(background_options={"completion_window": window}, **params)

    assert (error.status, error.code) == (400, "invalid_value")
    assert error.param == "background_options.completion_window"
    assert words in error.message


# --- what isn't served ---


@pytest.mark.parametrize(("name", "harmless"), [(name, value) for name, (value, _) in UNSERVED.items()], ids=UNSERVED)
def test_what_is_not_served_is_harmless_at_its_default_and_else_refused_by_name(name: str, harmless: bytes) -> None:
    assert create(**{name: json.loads(harmless)}).model == "m"
    error = refused(**{name: {"any": ["thing"]}})

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert UNSERVED[name][1] in error.message


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


# --- what is refused ---


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


@pytest.mark.parametrize("stores", [True, False])
def test_what_is_not_stored_may_be_in_the_background_where_that_is_allowed(stores: bool) -> None:
    body = msgspec.json.encode({**BODY, "background": True, "store": False})
    request = read_create(body, store=stores, unstored_background=True)

    assert (request.background, request.store) == (True, False)
