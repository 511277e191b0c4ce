"""A create body: what is served, what is harmless, what comes later and is refused by name, and what is unknown."""

import json
from typing import Any, get_type_hints

import msgspec
import pytest
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import BackgroundOptions, ResponseCreateParamsStreaming
from openai.types.responses.responses_client_event_param import ResponseCreate

from service.api.request import UNSERVED, BackgroundParam, CreateBody, CreateFrame, CreateRequest, read_create
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
OTHERS = ("service_tier", "tools", "reasoning", "text", "stream_options", "user", "background_options")


def test_a_served_parameter_is_read_and_null_is_the_same_as_leaving_it_out() -> None:
    for name, value in SERVED.items():
        assert getattr(create(**{name: value}), name) == value
    for name in (*SERVED, *UNSERVED, *OTHERS):
        assert create(**{name: None}) == create(), name


def test_every_parameter_of_the_sdk_is_known() -> None:
    known: dict[type, Any] = {ResponseCreate: CreateFrame, BackgroundOptions: BackgroundParam}
    known |= dict.fromkeys((ResponseCreateParamsStreaming, ResponseCompactParams, InputTokenCountParams), CreateBody)
    for theirs, ours in known.items():
        assert set(get_type_hints(theirs)) - set(ours.__struct_fields__) == set(), theirs


def test_a_completion_window_is_read() -> None:
    options = {"completion_window": "8h", "continuation_id": "nightly"}
    request = create(background=True, service_tier="default", background_options=options)
    assert (request.window, request.continuation_id) == ("8h", "nightly")
    assert (create(background_options={}).window, create().continuation_id) == ("soonest", None)


def test_a_window_that_ends_later_is_for_the_background_alone() -> None:
    for params, words in (
        ({}, "'background': true"),
        ({"background": True, "stream": True}, "without 'stream'"),
        ({"background": True, "service_tier": "flex"}, "'service_tier'"),
    ):
        error = refused(background_options={"completion_window": "2h"}, **params)
        assert (error.status, error.param) == (400, "background_options.completion_window")
        assert words in error.message


# --- what isn't served ---


def test_what_is_not_served_is_harmless_at_its_default_and_else_refused_by_name() -> None:
    for name, (harmless, words) in UNSERVED.items():
        assert create(**{name: json.loads(harmless)}).model == "m"
        error = refused(**{name: {"any": ["thing"]}})
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
        assert words in error.message


# --- what is refused ---


def test_a_service_that_stores_nothing_says_so() -> None:
    for name, value in {"store": True, "previous_response_id": "r", "background": True}.items():
        error = refusal(msgspec.json.encode({**BODY, name: value}), stores=False)
        assert (error.code, error.param) == ("unsupported_parameter", name)
    unstored = msgspec.json.encode({**BODY, "background": True, "store": False})
    request = read_create(unstored, store=False, unstored_background=True)
    assert (request.background, request.store) == (True, False)
