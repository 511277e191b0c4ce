"""What is sent to a TensorRT-LLM server and read from it, key by key; and what each trap of its wire becomes."""

from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from service.engine.pass_through import Passed
from service.engine.port import (
    Chunk,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Generation,
    Sampling,
)
from service.engine.servers.kind import Facts, ServerChanged, Terms
from service.engine.tensorrt import wire
from service.engine.tensorrt.answer import TensorrtAnswer
from service.engine.tensorrt.servers import REUSES, Tensorrt
from service.harmony.tokens import CALL, ENDOFTEXT, LAST_LEGAL, RETURN, STOPS
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.tensorrt.wire import DONE, error, error_body, event, sent, usage, usage_event

TAG = '{"type":"structural_tag","format":{"type":"token","token":200005}}'
SAMPLING = msgspec.structs.replace(ALL_SET, structural_tag=TAG, logprobs=None)


def body(sampling: Sampling = SAMPLING, **fields: Any) -> dict[str, Any]:
    asked = Generation(**{"id": "resp_1", "prompt": array("I", [1, 2, 3]), "sampling": sampling, **fields})
    return msgspec.json.decode(wire.request_body(asked, "m"))


def test_all_that_was_asked_for_is_sent_and_nothing_that_it_does_not_know() -> None:
    assert body(cache_salt="acme", priority=1) == {
        "model": "m",
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": 11,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "presence_penalty": 1.5,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.25,
        "detokenize": False,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "stop_token_ids": list(STOPS),
        "logit_bias": {str(ENDOFTEXT): -100.0},
        "seed": 42,
        "priority": 0.25,
        "response_format": {"type": "structural_tag", "format": {"type": "token", "token": 200005}},
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"seed": -1}, {"seed": 2**63 - 1}),
        ({"stop_ids": (RETURN,)}, {"logit_bias": {str(ENDOFTEXT): -100.0, str(CALL): -100.0}}),
        ({"stop_ids": ()}, {"ignore_eos": True}),
    ],
)
def test_what_has_another_form_there_gets_it(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= body(msgspec.structs.replace(SAMPLING, **changed)).items()


def test_ignoring_the_model_s_own_ends_would_switch_off_ours() -> None:
    assert "ignore_eos" not in body()
    assert "stop_token_ids" not in body(Sampling(5))


def test_what_was_not_asked_for_is_left_out() -> None:
    asked = body(Sampling(5, stop_ids=(*STOPS, ENDOFTEXT)))
    assert not {"seed", "logit_bias", "priority", "response_format", "logprobs"} & asked.keys()


def test_priorities_are_in_the_same_order_whatever_they_are() -> None:
    given = [wire.priority(each) for each in (10**30, 2, 1, 0, -1, -2, -(10**30))]
    assert given == sorted(given)
    assert (given[0], given[3], given[-1]) == (0, 0.5, 1)


@pytest.mark.parametrize("tag", ["{", "[]", "{}", '{"format":[]}', '{"format":{"type":"regex","pattern":"("}}'])
def test_a_constraint_that_can_not_be_read_never_reaches_it(tag: str) -> None:
    with pytest.raises(EngineRefused, match="constraint can't be read"):
        body(Sampling(5, structural_tag=tag))


def test_an_id_that_is_no_token_never_reaches_it() -> None:
    with pytest.raises(EngineRefused, match=f"{LAST_LEGAL + 1} is no token id"):
        body(prompt=[1, LAST_LEGAL + 1])


@pytest.mark.parametrize("logprobs", [0, 3])
def test_log_probabilities_are_refused_with_what_to_leave_out(logprobs: int) -> None:
    with pytest.raises(EngineRefused, match=r"leave out top_logprobs, and message\.output_text\.logprobs in include"):
        body(Sampling(5, logprobs=logprobs))


# --- answers --------------------------------------------------------------------------------------------------


def read(*pieces: bytes, ending: bool = False) -> list[Chunk]:
    """The chunks of a stream."""
    answer = TensorrtAnswer(logprobs=None)
    answer.ending = ending
    return [*(chunk for piece in pieces for chunk in answer.feed(piece)), answer.end()]


def test_a_stream_is_its_ids_its_finish_and_what_was_cached() -> None:
    pieces = (event([5]), event([6, RETURN], "stop", RETURN), usage_event(69, 3, 64), DONE)
    assert read(*pieces) == [Chunk([5], cached_tokens=64), Chunk([6, RETURN], cached_tokens=64), _end(Finish.STOP)]
    assert read(event([5], "length"), DONE)[-1].finish is Finish.LENGTH
    whole = b"".join(pieces)
    assert [token for chunk in read(*(bytes([each]) for each in whole)) for token in chunk.tokens] == [5, 6, RETURN]


def _end(finish: Finish) -> Chunk:
    return Chunk([], finish, 64)


def test_a_server_that_says_nothing_of_its_cache_leaves_it_open() -> None:
    for said in (None, usage(3, 1, 0) | {"prompt_tokens_details": None}):
        assert read(event([5], "stop", usage=said), DONE)[-1].cached_tokens is None


def test_what_comes_behind_the_finish_says_nothing() -> None:
    chunks = read(event([5], "stop"), event([6]), DONE, DONE, event([7], "length"))
    assert [token for chunk in chunks for token in chunk.tokens] == [5]
    assert chunks[-1].finish is Finish.STOP


FAULTS: dict[str, tuple[bytes, type[EngineError], str]] = {
    "an error of nobody's": (error("boom"), EngineError, "status 500"),
    "an error with a code": (sent({"error": {"message": "no", "code": 400}}), EngineRefused, "^no$"),
    "an error by itself": (sent(error_body(400, "no")), EngineError, "status 500"),
    "an error that is a text": (sent({"error": "boom"}), EngineError, "status 500"),
    "a text": (event(None), EngineError, "without token ids"),
    "an abort of its own": (event([], "cancelled"), EngineUnavailable, "aborted"),
    "a finish of another kind": (event([], "timeout"), EngineError, "'timeout'"),
    "garbage": (b"data: Hello.\n\n", EngineError, "no event"),
    "an array": (sent([]), EngineError, "no event"),
    "no UTF-8": (b'data: {"choices":[{"finish_reason":"\xff"}]}\n\n', EngineError, "no event"),
    "ids of another kind": (sent({"choices": [{"token_ids": ["5"]}]}), EngineError, "no event"),
    "an id that is no token": (sent({"choices": [{"token_ids": [201088]}]}), EngineError, "no event"),
    "an id below all": (sent({"choices": [{"token_ids": [-1]}]}), EngineError, "no event"),
    "less than nothing cached": (event([], usage=usage(1, 1, -1)), EngineError, "no event"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_in_a_stream_is_told(fault: str) -> None:
    piece, kind, words = FAULTS[fault]
    with pytest.raises(EngineError, match=words) as raised:
        read(piece)
    assert type(raised.value) is kind
    assert len(str(raised.value)) < 200


def test_a_stream_that_ends_too_early_is_no_answer() -> None:
    for pieces in ([], [DONE], [event([5])], [event([5], "stop")[:-1]]):
        with pytest.raises(EngineBroke, match="broke off"):
            read(*pieces)


@pytest.mark.parametrize("said", [{"error": "secret"}, error_body(400, "secret"), {"error": {"message": "secret"}}])
def test_only_a_refusal_repeats_the_server_s_words(said: object) -> None:
    for status in (400, 401, 404, 429, 500, 503):
        told = str(wire.read_refusal(status, msgspec.json.encode(said)))
        assert ("secret" in told) == (status == 400)
    assert str(wire.read_refusal(400, b"<html>")) == str(wire.read_refusal(400, b"{}")) == "status 400"


@pytest.mark.parametrize("read", [wire.read_event, wire.read_models, wire.read_probe])
@pytest.mark.parametrize("body", [b"", b"Hello.", b"[]", b"null", b'{"data":1,"choices":1}', b"\xff"])
def test_garbage_is_an_error_of_the_port(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(EngineError, match="TensorRT-LLM server"):
        read(body)


# --- what a server says of itself --------------------------------------------------------------------------------


def answered(ids: list[int] | None, cached: int | None) -> dict[str, Any]:
    """A whole answer."""
    details = None if cached is None else {"cached_tokens": cached}
    return {"choices": [{"token_ids": ids}], "usage": {"prompt_tokens_details": details}}


async def facts(
    *answers: object,
    models: object = {"data": [{"id": "gpt-oss-20b"}]},
    status: int = 200,
    terms: Terms = Terms("", 8192),  # noqa: B008 - frozen
    shared: bool = False,
) -> Facts:
    """What is made of a server's answers, those to the probes one after the other."""
    rest, prompts = list(answers), []

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if method == "GET":
            return 200, msgspec.json.encode(models)
        prompts.append(msgspec.json.decode(body or b"{}")["prompt"])
        return status, msgspec.json.encode(rest.pop(0))

    kind = Tensorrt(shared=shared)
    found = await kind.facts(ask, lambda: terms)
    assert prompts[0] == prompts[1]
    assert len(prompts[0]) == 300
    assert await kind.serves(ask, found, lambda: terms)
    return found


async def test_what_a_server_serves_is_what_it_says_and_whether_it_reuses_prompts_what_it_does() -> None:
    fresh, cached = answered([5], 0), answered([5], 288)
    said = Facts(wire.COMPLETIONS, "gpt-oss-20b", 8192, logprobs=False, constrains=False)
    assert await facts(fresh, fresh) == said
    assert (await facts(fresh, fresh, shared=True)).traits == frozenset()
    assert (await facts(fresh, cached)).traits == {REUSES}
    assert (await facts(answered([5], None), answered([5], None))).traits == {REUSES}


@pytest.mark.parametrize(
    ("answers", "said", "reason"),
    [
        ((), {"terms": Terms("other", 1)}, "does not serve the model 'other'"),
        ((), {"terms": Terms()}, "HARMONIUM_CONTEXT_TOKENS"),
        ((), {"models": "?"}, "does not say what it serves; is it one"),
        ((answered(None, 0),), {}, "gives no token ids; is it recent"),
        (({"choices": []},), {}, "gives no token ids; is it recent"),
        (([],), {}, "does not answer a completion; is it one"),
        ((answered([5], 0), answered([5], 288)), {"shared": True}, "enable_block_reuse: false"),
        ((answered([5], None), answered([5], None)), {"shared": True}, "can't keep those of tenants apart"),
    ],
)
async def test_a_server_that_is_not_what_is_needed_is_not_let_in(
    answers: tuple[object, ...], said: dict[str, Any], reason: str
) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        await facts(*answers, **said)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, EngineRefused), (401, ServerChanged), (404, ServerChanged), (503, EngineOverloaded)]
)
async def test_a_server_that_refuses_a_probe_is_not_let_in_and_says_why(status: int, kind: type[EngineError]) -> None:
    with pytest.raises(kind):
        await facts({"error": "logit_bias requires a tokenizer"}, status=status)


async def test_a_salt_of_its_own_is_refused_where_prompts_are_reused_and_only_there() -> None:
    kind, sampling = Tensorrt(shared=False, salt="ours"), Sampling(5)
    reusing = Facts(wire.COMPLETIONS, "m", 9, traits=frozenset({REUSES}))
    assert kind.request(reusing, Generation("", (1,), sampling, cache_salt="ours")).end is None
    with pytest.raises(EngineRefused, match="leave out cache_salt"):
        kind.request(reusing, Generation("", (1,), sampling, cache_salt="own"))
    kind.request(Facts(wire.COMPLETIONS, "m", 9), Generation("", (1,), sampling, cache_salt="own"))


async def test_what_is_passed_on_gets_nothing_that_a_server_might_not_know() -> None:
    kind = Tensorrt(shared=False, salt="ours")
    assert kind.passed(Passed("r", "/v1/embeddings", {}, cache_salt="own", priority=-1)) == {}
    answers = [answered([5], 0), answered([5], 288)]

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        return 200, msgspec.json.encode({"data": [{"id": "m"}]} if method == "GET" else answers.pop(0))

    await kind.facts(ask, lambda: Terms("", 8192))
    with pytest.raises(EngineRefused, match="leave out cache_salt"):
        kind.passed(Passed("r", "/v1/embeddings", {}, cache_salt="own"))
