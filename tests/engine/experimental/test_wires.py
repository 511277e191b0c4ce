"""The wires of SGLang and TensorRT-LLM as tables of (kind, payload, outcome): requests, answers, what a server says."""

import json
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from service.engine.pass_through import Passed
from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Generation,
    Sampling,
    TokenLogprobs,
)
from service.engine.servers.experimental import REUSES, Sglang, Tensorrt, priority
from service.engine.servers.kind import Facts, ServerChanged, Terms
from service.harmony.tokens import CALL, ENDOFTEXT, LAST_LEGAL, RETURN, STOPS
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.sglang import wire as sglang
from tests.support.tensorrt import wire as tensorrt

Kind = Sglang | Tensorrt

S, T = Sglang(), Tensorrt(shared=False, salt="acme")
KINDS: list[Kind] = [S, T]
TAG = '{"type":"structural_tag","format":{"type":"token","token":200005}}'
SAMPLING = msgspec.structs.replace(ALL_SET, structural_tag=TAG, logprobs=None)
DONE = b"data: [DONE]\n\n"


def named(value: object) -> str | None:
    """The name of a kind, in the ids of tests."""
    return value.name if isinstance(value, Kind) else None


def body(kind: Kind, sampling: Sampling = SAMPLING, **fields: Any) -> dict[str, Any]:
    """What is posted for a generation; of SGLang, the parameters stand beside the other members."""
    asked = Generation(**{"id": "resp_1", "prompt": array("I", [1, 2, 3]), "sampling": sampling, **fields})
    sent = msgspec.json.decode(kind.request(Facts("", "m", 9), asked).body)
    return sent | sent.pop("sampling_params", {})


# --- requests -------------------------------------------------------------------------------------------------

BOTH = {
    "stream": True,
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 7,
    "min_p": 0.125,
    "presence_penalty": 1.5,
    "frequency_penalty": -1.5,
    "repetition_penalty": 1.25,
    "skip_special_tokens": False,
    "stop_token_ids": list(STOPS),
    "logit_bias": {str(ENDOFTEXT): -100.0},
}
OF_SGLANG = {
    "input_ids": [1, 2, 3],
    "priority": -1,
    "cache_salt": "acme",
    "extra_key": "acme",
    "max_new_tokens": 11,
    "no_stop_trim": True,
    "stream_interval": 1,
    "sampling_seed": 42,
    "structural_tag": TAG,
}
OF_TENSORRT = {
    "model": "m",
    "prompt": [1, 2, 3],
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "max_tokens": 11,
    "detokenize": False,
    "add_special_tokens": False,
    "include_stop_str_in_output": True,
    "seed": 42,
    "priority": 0.25,
    "response_format": {"type": "structural_tag", "format": {"type": "token", "token": 200005}},
}


@pytest.mark.parametrize(("kind", "own"), [(S, OF_SGLANG), (T, OF_TENSORRT)], ids=named)
def test_all_that_was_asked_for_is_sent_by_its_names_and_nothing_else(kind: Kind, own: dict[str, Any]) -> None:
    sent = body(kind, cache_salt="acme", priority=1)
    assert sent.pop("rid", "resp_1-").startswith("resp_1-")
    assert sent == BOTH | own


@pytest.mark.parametrize(
    ("kind", "changed", "expected"),
    [
        (S, {"top_k": 0}, {"top_k": -1}),
        (S, {"seed": -1}, {"sampling_seed": 2**63 - 1}),
        (S, {"logprobs": 0}, {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": 0}),
        (T, {"seed": -1}, {"seed": 2**63 - 1}),
        *((kind, {"top_p": 0}, {"top_p": 1e-6}) for kind in KINDS),
        *((kind, {"stop_ids": ()}, {"ignore_eos": True}) for kind in KINDS),
        *(
            (kind, {"stop_ids": (RETURN,)}, {"logit_bias": {str(ENDOFTEXT): -100.0, str(CALL): -100.0}})
            for kind in KINDS
        ),
    ],
    ids=named,
)
def test_a_value_that_has_another_form_there_gets_it(
    kind: Kind, changed: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert expected.items() <= body(kind, msgspec.structs.replace(SAMPLING, **changed)).items()


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_ignoring_the_model_s_own_ends_would_switch_off_ours_so_one_of_them_is_sent(kind: Kind) -> None:
    assert "ignore_eos" not in body(kind)
    assert "stop_token_ids" not in body(kind, Sampling(5))


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_members_that_were_not_asked_for_are_left_out(kind: Kind) -> None:
    left_out = {"cache_salt", "extra_key", "return_logprob", "logprobs", "seed", "logit_bias", "structural_tag"}
    assert not {*left_out, "response_format"} & body(kind, Sampling(5, stop_ids=(*STOPS, ENDOFTEXT))).keys()


NESTED = '{"format":' + '{"type":"optional","content":' * 3000 + "{}" + "}" * 3000 + "}"
MALFORMED = ["{", "[]", "{}", '{"format":[]}', '{"format":{"type":"regex","pattern":"("}}', "\ud800", NESTED]


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize("tag", MALFORMED)
def test_a_constraint_that_can_not_be_read_never_reaches_a_server(kind: Kind, tag: str) -> None:
    with pytest.raises(EngineRefused, match="constraint can't be read"):
        body(kind, Sampling(5, structural_tag=tag))


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_an_id_that_is_no_token_never_reaches_a_server(kind: Kind) -> None:
    with pytest.raises(EngineRefused, match=f"{LAST_LEGAL + 1} is no token id"):
        body(kind, prompt=[1, LAST_LEGAL + 1])


@pytest.mark.parametrize("logprobs", [0, 3])
def test_tensorrt_refuses_log_probabilities_with_what_to_leave_out(logprobs: int) -> None:
    with pytest.raises(EngineRefused, match=r"leave out top_logprobs, and message\.output_text\.logprobs in include"):
        body(T, Sampling(5, logprobs=logprobs))


def test_every_request_to_sglang_has_an_id_of_its_own_and_is_ended_by_that() -> None:
    asked = [S.request(Facts("", "m", 9), Generation("resp_1", (1,), Sampling(5))) for _ in range(2)]
    rids = [msgspec.json.decode(each.body)["rid"] for each in asked]
    assert rids[0] != rids[1]
    ends = [(each.end.path, msgspec.json.decode(each.end.body)) for each in asked if each.end]
    assert ends == [("/abort_request", {"rid": rid}) for rid in rids]


def test_priorities_of_tensorrt_are_in_the_same_order_whatever_they_are() -> None:
    given = [priority(each) for each in (10**30, 2, 1, 0, -1, -2, -(10**30))]
    assert given == sorted(given)
    assert (given[0], given[3], given[-1]) == (0, 0.5, 1)


def test_a_salt_of_its_own_is_refused_where_prompts_are_reused_and_only_there() -> None:
    reusing, own = Facts("", "m", 9, traits=frozenset({REUSES})), Generation("", (1,), Sampling(5), cache_salt="own")
    assert T.request(reusing, msgspec.structs.replace(own, cache_salt="acme")).end is None
    with pytest.raises(EngineRefused, match="leave out cache_salt"):
        T.request(reusing, own)
    T.request(Facts("", "m", 9), own)


async def test_what_is_passed_on_is_salted_where_a_server_knows_salts_and_refused_where_it_reuses_prompts() -> None:
    passed, kind = Passed("r", "/v1/x", {}, cache_salt="own", priority=-1), Tensorrt(shared=False, salt="acme")
    assert S.passed(passed) == {"cache_salt": "own", "extra_key": "own", "priority": 1}
    assert kind.passed(passed) == {}
    await facts(kind, {"COMPLETIONS": [answered([5], 0), answered([5], 288)]}, Terms("", 8192))
    with pytest.raises(EngineRefused, match="leave out cache_salt"):
        kind.passed(passed)


# --- answers --------------------------------------------------------------------------------------------------


def read(kind: Kind, *pieces: bytes, logprobs: int | None = None, ending: bool = False) -> list[Chunk]:
    answer = kind.answer(Generation("", (1,), Sampling(5, logprobs=logprobs)))
    answer.ending = ending
    return [*(chunk for piece in pieces for chunk in answer.feed(piece)), answer.end()]


def whole(kind: Kind, sizes: list[int], **more: Any) -> bytes:
    """A stream whose events have so many ids each, from 5 on, then a stop."""
    ids, stream = iter(range(5, 5 + sum(sizes))), b""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    for size, count in zip(sizes, ends, strict=True):
        these, last = [next(ids) for _ in range(size)], count == sum(sizes)
        if kind is S:
            stream += sglang.event(these, count, sglang.STOP if last else None, **more)
        else:
            stream += tensorrt.event(these, "stop" if last else None)
    return stream + DONE


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize("step", [1, 7, 100, 10_000])
def test_a_stream_is_its_ids_its_finish_and_what_was_cached_wherever_it_is_cut(kind: Kind, step: int) -> None:
    stream = whole(kind, [1, 3, 2])
    chunks = read(kind, *(stream[a:b] for a, b in pairwise([*range(0, len(stream), step), len(stream)])))
    assert [token for chunk in chunks for token in chunk.tokens] == [5, 6, 7, 8, 9, 10]
    assert (chunks[-1].finish, chunks[-1].cached_tokens) == (Finish.STOP, 64)


@pytest.mark.parametrize(
    ("kind", "pieces", "finish"),
    [
        (S, [sglang.event([5], 1, sglang.LENGTH)], Finish.LENGTH),
        (T, [tensorrt.event([5], "length"), DONE], Finish.LENGTH),
        (S, [sglang.event([5], 1, sglang.STOP), DONE, DONE, sglang.event([6], 2)], Finish.STOP),
        (T, [tensorrt.event([5], "stop"), tensorrt.event([6]), DONE, DONE], Finish.STOP),
        (S, [sglang.event([5], 1), sglang.event([5], 1, sglang.abort("Aborted"))], Finish.ABORT),
        (T, [tensorrt.event([5]), tensorrt.event([], "cancelled")], Finish.ABORT),
    ],
    ids=named,
)
def test_an_end_is_read_once_and_nothing_behind_it(kind: Kind, pieces: list[bytes], finish: Finish) -> None:
    chunks = read(kind, *pieces, ending=True)
    assert [token for chunk in chunks for token in chunk.tokens] == [5]
    assert chunks[-1].finish is finish


@pytest.mark.parametrize(
    ("listed", "wanted", "outcome"),
    [
        (
            {"output_token_logprobs": [[None, 64]], "output_top_logprobs": [[[-2.0, 65, None], [-1.0, 66, ""]]]},
            1,
            TokenLogprobs(LEAST_LOGPROB, ((66, -1.0),)),
        ),
        ({"output_token_logprobs": [[-1e9, 64]]}, 0, TokenLogprobs(LEAST_LOGPROB)),
        ({}, 0, None),
        ({"output_token_logprobs": []}, 0, None),
        ({"output_token_logprobs": [[-1.0, 65, None]]}, 0, None),
        ({"output_token_logprobs": [[-1.0, 64]], "output_top_logprobs": [[], []]}, 1, None),
    ],
)
def test_log_probabilities_of_sglang_come_with_each_token_or_are_an_error(
    listed: dict[str, Any], wanted: int, outcome: TokenLogprobs | None
) -> None:
    stream = sglang.event([64], 1, sglang.STOP, **listed)
    if outcome is None:
        with pytest.raises(EngineError, match="without their log probabilities"):
            read(S, stream, logprobs=wanted)
    else:
        assert read(S, stream, logprobs=wanted)[0].logprobs == [outcome]


def test_a_tensorrt_server_that_says_nothing_of_its_cache_leaves_it_open() -> None:
    for said in (None, tensorrt.usage(3, 1, 0) | {"prompt_tokens_details": None}):
        assert read(T, tensorrt.event([5], "stop", usage=said), DONE)[-1].cached_tokens is None


def faults() -> Iterator[tuple[Kind, bytes, type[EngineError], str]]:
    """What goes wrong in a stream, and what that is."""
    for kind in KINDS:
        yield kind, sglang.error("too long"), EngineRefused, "^too long$"
        yield kind, tensorrt.error("boom"), EngineError, "status 500"
        yield kind, sglang.sent({"error": "boom"}), EngineError, "status 500"
    yield T, tensorrt.sent(tensorrt.error_body(400, "no")), EngineError, "status 500"
    yield T, tensorrt.event(None), EngineError, "without token ids"
    yield T, tensorrt.event([], "cancelled"), EngineUnavailable, "aborted"
    yield T, tensorrt.event([], "timeout"), EngineError, "'timeout'"
    yield T, tensorrt.event([], usage=tensorrt.usage(1, 1, -1)), EngineError, "no event"
    yield S, sglang.event([0], 1, sglang.abort("bad grammar", 400)), EngineRefused, "^bad grammar$"
    yield S, sglang.event([], 0, sglang.abort("The queue is full.", 503)), EngineOverloaded, "no more work"
    yield S, sglang.event([], 0, sglang.abort("boom", 500)), EngineError, "status 500"
    yield S, sglang.event([5], 1, sglang.abort("Aborted")), EngineUnavailable, "aborted"
    yield S, sglang.event([5], 1, {"type": "stop", "matched": "NaN happened"}), EngineError, "NaN happened"
    yield S, sglang.event([5], 1, {"type": "tired"}), EngineError, "'tired'"
    yield S, sglang.sent({"output_ids": [5], "meta_info": {}}), EngineError, "no event"
    yield S, sglang.event([], -1), EngineError, "no event"
    yield S, sglang.sent({"output_ids": [5]}), EngineError, "how many tokens"
    yield S, sglang.event([5], 3), EngineError, "--incremental-streaming-output"
    yield S, sglang.event([5], 1) + sglang.event([5, 6], 2), EngineError, "--incremental-streaming-output"
    for ids in (["5"], [LAST_LEGAL + 1], [-1]):
        yield S, sglang.sent({"output_ids": ids, "meta_info": {"completion_tokens": 1}}), EngineError, "no event"
        yield T, tensorrt.sent({"choices": [{"token_ids": ids}]}), EngineError, "no event"


@pytest.mark.parametrize(("kind", "piece", "error", "words"), list(faults()), ids=named)
def test_what_goes_wrong_in_a_stream_is_told(kind: Kind, piece: bytes, error: type[EngineError], words: str) -> None:
    with pytest.raises(EngineError, match=words) as raised:
        read(kind, piece)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize("said", [{"error": "secret"}, {"error": {"message": "secret"}}, {"message": "secret"}])
def test_only_a_refusal_repeats_the_server_s_words(kind: Kind, said: object) -> None:
    for status in (400, 401, 404, 429, 500, 503):
        assert ("secret" in str(kind.refused(status, msgspec.json.encode(said)))) == (status == 400)
    assert str(kind.refused(400, b"<html>")) == str(kind.refused(400, b"{}")) == "status 400"


# --- what a server says of itself --------------------------------------------------------------------------------

MODELS = {"data": [{"id": "gpt-oss-20b", "max_model_len": 8192}, {"id": "lora", "max_model_len": None}]}


def answered(ids: list[int] | None, cached: int | None) -> dict[str, Any]:
    details = None if cached is None else {"cached_tokens": cached}
    return {"choices": [{"token_ids": ids}], "usage": {"prompt_tokens_details": details}}


FRESH, CACHED, UNSAID = answered([5], 0), answered([5], 288), answered([5], None)


async def facts(
    kind: Kind,
    said: dict[str, Any] | None = None,
    terms: Terms = Terms(),  # noqa: B008 - frozen
    status: int = 200,
) -> Facts:
    """What is made of a server's answers, of which those to the same completion come one after the other."""
    answers: dict[str, Any] = {"models": MODELS, "info": {"model_type": "gpt_oss"}, "COMPLETIONS": [FRESH, FRESH]}
    answers |= said or {}
    probes, prompts = list(answers["COMPLETIONS"]), []

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if method == "GET":
            return status, json.dumps(answers["models" if path == "/v1/models" else "info"]).encode()
        prompts.append(msgspec.json.decode(body or b"{}")["prompt"])
        return status, json.dumps(probes.pop(0)).encode()

    found = await kind.facts(ask, lambda: terms)
    assert await kind.serves(ask, found, lambda: terms)
    assert not prompts or (prompts[0] == prompts[1] and len(prompts[0]) == 300)
    return found


PLAIN = Facts("/v1/completions", "gpt-oss-20b", 8192, logprobs=False, constrains=False)
REUSING = msgspec.structs.replace(PLAIN, traits=frozenset({REUSES}))


@pytest.mark.parametrize(
    ("kind", "said", "terms", "outcome"),
    [
        (S, {}, Terms(), Facts("/generate", "gpt-oss-20b", 8192)),
        (S, {}, Terms("lora", 4096), Facts("/generate", "lora", 4096)),
        (T, {}, Terms(), PLAIN),
        (T, {"models": {"data": [{"id": "gpt-oss-20b"}]}}, Terms("", 8192), PLAIN),
        (T, {"COMPLETIONS": [FRESH, CACHED]}, Terms(), REUSING),
        (T, {"COMPLETIONS": [UNSAID, UNSAID]}, Terms(), REUSING),
        (Tensorrt(shared=True), {}, Terms(), PLAIN),
    ],
    ids=named,
)
async def test_a_server_serves_what_it_says(kind: Kind, said: dict[str, Any], terms: Terms, outcome: Facts) -> None:
    assert await facts(kind, said, terms) == outcome


@pytest.mark.parametrize(
    ("kind", "said", "terms", "reason"),
    [
        *((kind, {}, Terms("other"), "does not serve the model 'other'") for kind in KINDS),
        *((kind, {"models": {"data": []}}, Terms(), "does not serve the model") for kind in KINDS),
        *((kind, {}, Terms("lora"), "HARMONIUM_CONTEXT_TOKENS") for kind in KINDS),
        *((kind, {"models": "?"}, Terms(), "does not say what it serves; is it one") for kind in KINDS),
        (S, {"info": {"model_type": "llama"}}, Terms(), "is of the type 'llama', and gpt-oss 'gpt_oss'"),
        (S, {"info": {}}, Terms(), "is of the type None"),
        (S, {"info": []}, Terms(), "does not say what kind of model it has; is it one"),
        (T, {"COMPLETIONS": [answered(None, 0)] * 2}, Terms(), "gives no token ids; is it recent"),
        (T, {"COMPLETIONS": [{"choices": []}] * 2}, Terms(), "gives no token ids; is it recent"),
        (T, {"COMPLETIONS": [[]]}, Terms(), "does not answer a completion; is it one"),
        (Tensorrt(shared=True), {"COMPLETIONS": [FRESH, CACHED]}, Terms(), "enable_block_reuse: false"),
        (Tensorrt(shared=True), {"COMPLETIONS": [UNSAID, UNSAID]}, Terms(), "can't keep those of tenants apart"),
    ],
    ids=named,
)
async def test_a_server_that_is_not_the_wanted_one_is_not_let_in(
    kind: Kind, said: dict[str, Any], terms: Terms, reason: str
) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        await facts(kind, said, terms)


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize(
    ("status", "error"), [(400, EngineRefused), (401, ServerChanged), (404, ServerChanged), (503, EngineOverloaded)]
)
async def test_a_server_that_refuses_to_say_is_not_let_in(kind: Kind, status: int, error: type[EngineError]) -> None:
    with pytest.raises(error):
        await facts(kind, status=status)
