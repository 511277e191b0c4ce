"""What is sent to a vLLM server and read from it, key by key."""

import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from service.engine.port import (
    LEAST_LOGPROB,
    Defaults,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Sampling,
    TokenLogprobs,
)
from service.engine.servers import kind
from service.engine.servers.kind import ServerChanged
from service.engine.vllm import servers as wire
from service.engine.vllm.servers import Endpoint, Vllm
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.engine.standin_wire import error_body

read_event = partial(kind.read_event, wire.NAME, wire.EVENT)
SAMPLING = msgspec.structs.replace(ALL_SET, stop_ids=(200002, 200012), structural_tag='{"type":"structural_tag"}')
SENT: dict[str, Any] = {
    "max_tokens": 11,
    "temperature": 0.5,
    "top_p": 0.25,
    "stop_token_ids": [200002, 200012],
    "ignore_eos": True,
    "top_k": 7,
    "min_p": 0.125,
    "presence_penalty": 1.5,
    "frequency_penalty": -1.5,
    "repetition_penalty": 1.25,
    "seed": 42,
    "logprobs": 3,
    "structured_outputs": {"structural_tag": '{"type":"structural_tag"}'},
}
BOTH: dict[str, Any] = {
    "model": "talker",
    "stream": True,
    "stream_options": {"include_usage": True},
    "cache_salt": "acme",
    "priority": -3,
}
GENERATION = Generation("resp_1", array("I", [1, 2, 3]), SAMPLING, affinity="a", cache_salt="acme", priority=-3)


def sent(endpoint: Endpoint, generation: Generation) -> dict[str, Any]:
    return msgspec.json.decode(wire.request_body(endpoint, generation, "talker"))


def logprobs(tokens: int, payload: dict[str, Any] | None) -> list[TokenLogprobs]:
    """What is read of the log probabilities of one choice of so many tokens."""
    choice = {"token_ids": [5] * tokens, "logprobs": payload}
    return wire.read_logprobs(read_event(msgspec.json.encode({"choices": [choice]})).choices[0], 2)


def test_generate_is_sent_every_parameter_under_vllms_own_name() -> None:
    parameters = {**SENT, "logprobs": 4, "detokenize": False}  # one more: the sampled token counts there
    assert sent(Endpoint.GENERATE, GENERATION) == {
        **BOTH,
        "token_ids": [1, 2, 3],
        "sampling_params": parameters,
        "reasoning_ended": True,
    }


def test_completions_is_sent_the_same_and_asked_for_ids() -> None:
    ids = {"return_token_ids": True, "return_tokens_as_token_ids": True, "skip_special_tokens": False}
    assert sent(Endpoint.COMPLETIONS, GENERATION) == {**BOTH, **SENT, **ids, "prompt": [1, 2, 3]}


@pytest.mark.parametrize("endpoint", Endpoint)
def test_what_was_not_asked_for_is_not_sent(endpoint: Endpoint) -> None:
    body = sent(endpoint, Generation("resp_1", [1], Sampling(5)))
    parameters = body.get("sampling_params", body)
    assert not {"seed", "logprobs", "structured_outputs"} & parameters.keys()
    assert body["cache_salt"] is None


def test_a_top_p_of_zero_which_vllm_refuses_is_the_least_there_is() -> None:
    body = sent(Endpoint.GENERATE, Generation("resp_1", [1], Sampling(5, top_p=0)))
    assert 0 < body["sampling_params"]["top_p"] <= 1e-5


@pytest.mark.parametrize("endpoint", Endpoint)
def test_a_large_prompt_is_written_in_no_time(endpoint: Endpoint) -> None:
    """Measured: 2 ms for 120,000 ids that are new; the event loop waits for it."""
    generation = Generation("resp_1", array("I", range(60_000, 180_000)), SAMPLING)
    begun = time.thread_time()
    body = wire.request_body(endpoint, generation, "talker")
    assert time.thread_time() - begun < 0.05
    assert len(body) > 700_000


def test_log_probabilities_are_read_in_generates_shape() -> None:
    top = [{"token_id": 5, "logprob": -0.5, "rank": 1}, {"token_id": 6, "logprob": -1.5, "rank": 2}]
    content = [{"token_id": 5, "logprob": -0.5, "rank": 1, "top_logprobs": top}, {"token_id": 9, "logprob": -9999.0}]
    assert logprobs(2, {"content": content}) == [
        TokenLogprobs(-0.5, ((5, -0.5), (6, -1.5))),
        TokenLogprobs(LEAST_LOGPROB),
    ]


def test_log_probabilities_are_read_in_completions_shape() -> None:
    top = [{"token_id:5": -0.5, "token_id:6": -1.5}, None]
    payload = {"text_offset": [0, 1], "tokens": ["token_id:5", "token_id:9"], "top_logprobs": top}
    expected = [TokenLogprobs(-0.5, ((5, -0.5), (6, -1.5))), TokenLogprobs(LEAST_LOGPROB)]
    assert logprobs(2, {**payload, "token_logprobs": [-0.5, None]}) == expected


def test_where_the_text_is_asked_for_tokens_are_told_by_it() -> None:
    """As vLLM 0.32 said it of SmolLM2, in the mode `text`, where it leaves the ids of alternatives out."""
    top = [{"token": "<|im_start|>", "logprob": -3.5}, {"token": "\n", "logprob": -0.5}]
    expected = [TokenLogprobs(-0.5, ((0, -0.5), (0, -3.5)), ("\n", "\n", "<|im_start|>"))]
    generated = {"content": [{"token": "\n", "logprob": -0.5, "top_logprobs": top}]}
    completed = {"tokens": ["\n"], "token_logprobs": [-0.5], "top_logprobs": [{"<|im_start|>": -3.5, "\n": -0.5}]}
    for shape in (generated, completed):
        choice = read_event(msgspec.json.encode({"choices": [{"token_ids": [198], "logprobs": shape}]})).choices[0]
        assert wire.read_logprobs(choice, 2, decoded=True) == expected
    with pytest.raises(EngineError, match="log probabilities"):
        logprobs(1, generated)


@pytest.mark.parametrize("endpoint", Endpoint)
def test_the_text_comes_with_its_marks_where_it_is_asked_for(endpoint: Endpoint) -> None:
    asked = msgspec.structs.replace(Generation("resp_1", [1], SAMPLING), decoded=True)
    body = sent(endpoint, asked)
    sampling = body.get("sampling_params", body)
    assert sampling["skip_special_tokens"] is False
    assert "detokenize" not in sampling
    assert body.get("output_mode") == ("text" if endpoint is Endpoint.GENERATE else None)


def test_no_log_probabilities_are_needed_where_there_are_no_tokens() -> None:
    assert logprobs(0, None) == logprobs(0, {"content": []}) == []


@pytest.mark.parametrize(
    "payload",
    [
        {"token_logprobs": [-0.5], "top_logprobs": [{"Hello": -0.5}]},
        {"token_logprobs": [-0.5, -0.5], "top_logprobs": [{}]},
        {"token_logprobs": [-0.5, -0.5]},
        {"content": []},
        None,
    ],
)
def test_log_probabilities_that_make_no_sense_are_an_error(payload: dict[str, Any] | None) -> None:
    with pytest.raises(EngineError, match="log probabilities"):
        logprobs(1, payload)


@pytest.mark.parametrize(
    ("status", "kind", "port_status"),
    [
        (400, EngineRefused, 400),
        (413, EngineRefused, 400),
        (422, EngineRefused, 400),
        (401, ServerChanged, 503),
        (403, ServerChanged, 503),
        (404, ServerChanged, 503),
        (405, ServerChanged, 503),
        (429, EngineOverloaded, 503),
        (503, EngineOverloaded, 503),
        (502, EngineUnavailable, 503),
        (504, EngineUnavailable, 503),
        (500, EngineError, 500),
        (501, EngineError, 500),
        (302, EngineError, 500),
    ],
)
def test_an_error_is_the_same_over_http_and_in_a_stream(status: int, kind: type[EngineError], port_status: int) -> None:
    body = msgspec.json.encode(error_body(status, "because"))
    over_http = Vllm().refused(status, body)
    with pytest.raises(EngineError) as in_a_stream:
        read_event(body)
    for error in (over_http, in_a_stream.value):
        assert type(error) is kind
        assert error.status == port_status
        assert ("because" in str(error)) == (kind is EngineRefused), "clients see it"


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"\xff", b"[]"])
def test_an_error_without_words_is_one_all_the_same(body: bytes) -> None:
    assert str(Vllm().refused(400, body)) == "status 400"
    assert "status 500" in str(Vllm().refused(500, body))


def test_a_server_that_rambles_is_cut_short() -> None:
    for status in (400, 403, 500, 503):
        assert len(str(Vllm().refused(status, msgspec.json.encode(error_body(status, "x" * 10_000))))) < 600


GARBAGE = [b"", b"Hello.", b"[]", b"null", b'{"data": 1, "choices": 1}', b'[{"sampling_params": 1}]', b"\xff"]
NOT_UTF8 = [
    b'{"choices": [{"finish_reason": "\xff"}]}',
    b'[{"\xff": 1}]',
    b'{"error": {"message": "\xff"}, "data": "\xff"}',
]


@pytest.mark.parametrize("read", [read_event, wire.read_defaults])
@pytest.mark.parametrize("body", [*GARBAGE, *NOT_UTF8])
def test_garbage_is_an_error_of_the_port(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(EngineError, match="vLLM server"):
        read(body)


@pytest.mark.parametrize("body", [*GARBAGE, *NOT_UTF8])
def test_an_error_of_garbage_is_an_error(body: bytes) -> None:
    assert "status 500" in str(Vllm().refused(500, body))


@pytest.mark.parametrize("id", ["-1", str(1 << 31), str(1 << 64), "1.5", '"1"'])
def test_a_prompt_of_ids_that_no_vocabulary_has_is_an_error(id: str) -> None:
    with pytest.raises(EngineError, match="something else than ids"):
        wire.read_cut(f'{{"tokens": [1, {id}]}}'.encode())


def test_defaults_are_read_from_what_a_server_makes_of_a_request() -> None:
    body = b'[{"sampling_params":{"temperature":0.6,"top_p":0.95,"top_k":20,"stop":[]},"token_ids":[0]}]'
    assert wire.read_defaults(body) == Defaults(temperature=0.6, top_p=0.95, top_k=20)
