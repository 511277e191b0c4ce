"""The wires of all kinds of servers as tables of (kind, payload, outcome): requests, answers, what a server says."""

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    Defaults,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    FormFile,
    Generation,
    Passed,
    Sampling,
    ShownTools,
    TokenLogprobs,
)
from service.engine.servers.answer import Answer
from service.engine.servers.kind import ServerChanged, ServerFacts, ServerKind, ServerTerms
from service.engine.vllm import servers as vllm_servers
from service.engine.vllm.servers import TokensEndpoint, Vllm
from service.features.llama.servers import Llama
from service.features.models.speech import Disarming
from service.harmony.tokens import CALL, ENDOFTEXT, RETURN, STOPS
from tests.support.engine import standin_wire as vllm
from tests.support.engine import voices
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.llama import wire as llama
from tests.support.llama.voice import LLAMA

VOICES = voices.VOICES | {"llama": LLAMA}
V, C, L = "vllm", "vllm's completions", "llama"
KINDS: dict[str, ServerKind] = {
    V: Vllm(Disarming()),
    L: Llama(shared=False),
}
KINDS[C] = KINDS[V]
ENDPOINTS = {
    V: TokensEndpoint.GENERATE,
    C: TokensEndpoint.COMPLETIONS,
    L: "/completion",
}
TAG = '{"type":"structural_tag","format":{"type":"token","token":200005}}'
DONE = b"data: [DONE]\n\n"


def body(kind: str, sampling: Sampling, *traits: str, **fields: Any) -> dict[str, Any]:
    """The members that are posted for a generation; parameters stand beside the others."""
    asked = Generation(**{"id": "resp_1", "prompt": array("I", [1, 2, 3]), "sampling": sampling, **fields})
    facts = ServerFacts(ENDPOINTS[kind], "m", 4096, traits=frozenset(traits))
    sent = msgspec.json.decode(KINDS[kind].request(facts, asked).body)
    return sent | sent.pop("sampling_params", {})


def sampling(kind: str, **changed: Any) -> Sampling:
    """Every parameter that the kind has, set to something else than its default."""
    lacks = {"structural_tag": None} if kind == L else {}
    return msgspec.structs.replace(ALL_SET, **{"structural_tag": TAG, **lacks, **changed})


# --- requests -------------------------------------------------------------------------------------------------

USUAL = {
    "stream": True,
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 7,
    "min_p": 0.125,
    "presence_penalty": 1.5,
    "frequency_penalty": -1.5,
}
OF_VLLM = {"model": "m", "stream_options": {"include_usage": True}, "cache_salt": "acme", "priority": 1}
OF_VLLM |= {"max_tokens": 11, "repetition_penalty": 1.25, "stop_token_ids": list(STOPS), "ignore_eos": True}
OF_VLLM |= {"seed": 42, "structured_outputs": {"structural_tag": TAG}}
OWN: dict[str, dict[str, Any]] = {
    # one logprob more: the sampled token counts there
    V: OF_VLLM | {"token_ids": [1, 2, 3], "logprobs": 4, "detokenize": False, "reasoning_ended": True},
    C: OF_VLLM
    | {"prompt": [1, 2, 3], "logprobs": 3, "return_token_ids": True, "return_tokens_as_token_ids": True}
    | {"skip_special_tokens": False},
    L: {"prompt": [1, 2, 3], "return_tokens": True, "timings_per_token": True, "n_predict": 11, "typical_p": 1.0}
    | {"repeat_penalty": 1.25, "repeat_last_n": 4096, "cache_prompt": True, "seed": 42, "n_probs": 3}
    | {"samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"], "logit_bias": [[ENDOFTEXT, False]]},
}


@pytest.mark.parametrize("kind", OWN)
def test_all_that_was_asked_for_is_sent_by_its_names_and_nothing_else(kind: str) -> None:
    sent = body(kind, sampling(kind), cache_salt="acme", priority=1)
    assert sent == USUAL | OWN[kind]


FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((kind, {"top_p": 0}, {"top_p": 1e-6}) for kind in (V, C)),
    (L, {"seed": None}, {"seed": -1}),
    (L, {"seed": -5}, {"seed": 2**32 - 6}),
    (L, {"logprobs": 0}, {"n_probs": 1}),
    (L, {"stop_ids": (RETURN,)}, {"logit_bias": [[ENDOFTEXT, False], [CALL, False]]}),
]


@pytest.mark.parametrize(("kind", "changed", "expected"), FORMS)
def test_a_value_of_another_form_there_gets_it(kind: str, changed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= body(kind, sampling(kind, **changed)).items()


@pytest.mark.parametrize("kind", OWN)
def test_members_that_were_not_asked_for_are_left_out(kind: str) -> None:
    sent = body(kind, Sampling(5, stop_ids=(*STOPS, ENDOFTEXT)))
    unasked = {"logprobs", "n_probs", "logit_bias", "grammar", "structured_outputs", "json_schema"}
    assert not unasked & sent.keys()
    assert (sent.get("cache_salt"), sent.get("seed", -1)) == (None, -1)


NESTED = '{"format":' + '{"type":"optional","content":' * 3000 + "{}" + "}" * 3000 + "}"


@pytest.mark.parametrize("tag", ["{", '{"format":{"type":"regex","pattern":"("}}', "\ud800", NESTED])
def test_a_constraint_that_can_not_be_read_never_reaches_llama(tag: str) -> None:
    with pytest.raises(EngineRefused, match="constraint can't be read"):
        body(L, Sampling(5, structural_tag=tag))


@pytest.mark.parametrize("guided", [False, True])
def test_a_schema_s_objects_are_closed_for_llama_and_no_mark_may_be_in_its_texts(guided: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"properties": {}}}}}
    tag = msgspec.json.encode({"format": {"type": "json_schema", "json_schema": schema}}).decode()
    asked = body(L, sampling(L, structural_tag=tag), *["llguidance"] * guided)
    grammar = asked.get("grammar", "")
    closed = grammar.partition("%json ")[2] if guided else msgspec.json.encode(asked["json_schema"]).decode()
    assert closed.count('"additionalProperties":false') == 2
    assert not guided or f"(<[{RETURN}]> | <[{CALL}]>)" in grammar
    assert {id for id, _ in asked["logit_bias"]} == set(range(199998, 200019)) - set(STOPS)


def test_what_is_passed_on_without_a_salt_leaves_llama_its_cached_prompts() -> None:
    kind, salted = Llama(shared=False), Passed("r", "/v1/chat/completions", {}, cache_salt="own")
    for passed in (salted, Passed("r", "/v1/messages", {}), salted):
        assert kind.passed_members(passed) == {"cache_prompt": True}
    assert Llama(shared=True).passed_members(Passed("r", "/v1/messages", {})) == {"cache_prompt": False}
    assert kind.passed_members(Passed("r", "/v1/audio/transcriptions", {}, file=FormFile("a", "", b""))) == {}


@pytest.mark.parametrize(
    ("shared", "salts", "cached"),
    [
        (False, ["a", "a", "a"], [True, True, True]),
        (False, ["a", "b", "a"], [True, False, False]),
        (False, [None, "a", "a"], [True, False, False]),
        (True, ["a", "a", "a"], [False, False, False]),
    ],
)
def test_llama_caches_prompts_of_one_salt(shared: bool, salts: list[str | None], cached: list[bool]) -> None:
    kind = Llama(shared=shared)
    generations = [Generation("", (1,), ALL_SET, cache_salt=each) for each in salts]
    asked = [kind.request(ServerFacts("/completion", "m", 9), each).body for each in generations]
    assert [msgspec.json.decode(each)["cache_prompt"] for each in asked] == cached


# --- answers --------------------------------------------------------------------------------------------------


def answer(kind: str, logprobs: int | None = None, *, ending: bool = False) -> Answer:
    reader = KINDS[kind].answer(Generation("", (1,), Sampling(9, stop_ids=STOPS, logprobs=logprobs)))
    reader.ending = ending
    return reader


def read(kind: str, *pieces: bytes, logprobs: int | None = None, ending: bool = False) -> list[Chunk]:
    reader = answer(kind, logprobs, ending=ending)
    fed = (chunk for piece in pieces if not reader.over for chunk in reader.feed(piece))
    return [*fed, reader.end()]


def tokens(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


def whole(kind: str, *sizes: int) -> bytes:
    voice, count, sent = VOICES[kind], 0, b": ping\n\n"
    for size in sizes:
        ids, count = list(range(65 + count, 65 + count + size)), count + size
        sent += voice.tokens(ids, count) + b": keep-alive\n\n"
    usage = vllm.usage_event(ENDPOINTS[kind], 96, count, 64) if kind in (V, C) else b""  # type: ignore[arg-type]
    return sent + voice.end(count) + usage + DONE


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_stream_is_its_ids_its_finish_and_its_cache_wherever_it_is_cut(kind: str, line_end: bytes, step: int) -> None:
    stream = whole(kind, 1, 3, 2).replace(b"\n", line_end)
    chunks = read(kind, *(stream[a:b] for a, b in pairwise([*range(0, len(stream), step), len(stream)])))
    assert tokens(chunks) == list(range(65, 71))
    told = [chunk.cached_tokens for chunk in chunks if chunk.cached_tokens is not None]
    assert (chunks[-1].finish, told[-1]) == (Finish.STOP, 64)
    assert step > 1 or [len(chunk.tokens) for chunk in chunks] == [1, 3, 2, 0]
    assert step < 10_000 or len(chunks) == 2


@pytest.mark.parametrize(
    ("kind", "pieces", "finish"),
    [
        (V, [vllm.tokens_event([5], "length"), DONE], Finish.LENGTH),
        (V, [vllm.tokens_event([5], "stop"), vllm.tokens_event([6]), DONE], Finish.STOP),
        (L, [llama.event("a", [5], 1), llama.stop_event(1, "limit")], Finish.LENGTH),
    ],
)
def test_an_end_is_read_once_and_nothing_behind_it(kind: str, pieces: list[bytes], finish: Finish) -> None:
    chunks = read(kind, *pieces, ending=True)
    assert tokens(chunks) == [5]
    assert chunks[-1].finish is finish


def test_a_stop_id_that_llama_does_not_know_ends_it_here() -> None:
    chunks = read(L, llama.event("a", [64], 1), llama.event("b", [CALL], 2), llama.event("c", [66], 3))
    assert (tokens(chunks), chunks[-1].finish) == ([64, CALL], Finish.STOP)


TOP = {"id": 64, "token": "a", "bytes": [97], "logprob": -0.5}
TOPS = [TOP, {"id": 65, "logprob": None}, {"id": 66, "logprob": -1e9}]
PROBABILITIES: list[tuple[str, bytes, int, TokenLogprobs | None]] = [
    (L, llama.event("a", [64], 1, completion_probabilities=[TOP | {"top_logprobs": TOPS}]), 3,
     TokenLogprobs(-0.5, ((64, -0.5), (65, LEAST_LOGPROB), (66, LEAST_LOGPROB)))),
    (L, llama.event("a", [64], 1), 0, None),
    *((V, vllm.event({"choices": [{"token_ids": [5], "logprobs": shape}]}), 2, outcome) for shape, outcome in (
        ({"content": [{"token_id": 5, "logprob": -0.5, "rank": 1, "top_logprobs": [
            {"token_id": 6, "logprob": -1.5, "rank": 2}, {"token_id": 5, "logprob": -0.5, "rank": 1}]}]},
         TokenLogprobs(-0.5, ((5, -0.5), (6, -1.5)))),
        ({"text_offset": [0], "tokens": ["token_id:5"], "token_logprobs": [-0.5],
          "top_logprobs": [{"token_id:5": -0.5, "token_id:6": -1.5}]}, TokenLogprobs(-0.5, ((5, -0.5), (6, -1.5)))),
        ({"tokens": ["token_id:5"], "token_logprobs": [None], "top_logprobs": [None]}, TokenLogprobs(LEAST_LOGPROB)),
        ({"token_logprobs": [-0.5], "top_logprobs": [{"Hello": -0.5}]}, None),
        ({"token_logprobs": [-0.5, -0.5]}, None),
        (None, None),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "event", "wanted", "outcome"), PROBABILITIES)
def test_log_probabilities_come_with_each_token_or_are_an_error(
    kind: str, event: bytes, wanted: int, outcome: TokenLogprobs | None
) -> None:
    if outcome is not None:
        assert next(answer(kind, wanted).feed(event)).logprobs == [outcome]
        return
    with pytest.raises(EngineError, match="log probabilities"):
        list(answer(kind, wanted).feed(event))


def test_a_llama_that_goes_on_behind_a_mark_where_an_answer_ends_is_not_read_further() -> None:
    reader = answer(L)
    assert list(reader.feed(llama.event("", [STOPS[0]], 1)))
    assert (reader.finished, reader.over) == (True, True)


def test_where_the_text_is_asked_for_vllm_tells_tokens_by_it() -> None:
    """As vLLM 0.32 said it of SmolLM2, in the mode `text`, where it leaves the ids of alternatives out."""
    top = [{"token": "<|im_start|>", "logprob": -3.5}, {"token": "\n", "logprob": -0.5}]
    generated = {"content": [{"token": "\n", "logprob": -0.5, "top_logprobs": top}]}
    completed = {"tokens": ["\n"], "token_logprobs": [-0.5], "top_logprobs": [{"<|im_start|>": -3.5, "\n": -0.5}]}
    for shape in (generated, completed):
        asked = Generation("", (1,), Sampling(9, logprobs=2), decoded=True)
        event = vllm.event({"choices": [{"token_ids": [198], "text": "\n", "logprobs": shape}]})
        (chunk,) = KINDS[V].answer(asked).feed(event)
        assert chunk.logprobs == [TokenLogprobs(-0.5, ((0, -0.5), (0, -3.5)), ("\n", "\n", "<|im_start|>"))]
        assert chunk.text == "\n"


def said(*pieces: tuple[list[int], str | None], finish: str) -> list[bytes]:
    """A stream of vLLM's with these ids and their text, where it has one."""
    choices = [{"token_ids": ids} | ({} if text is None else {"text": text}) for ids, text in pieces]
    return [*(vllm.event({"choices": [each]}) for each in choices), vllm.tokens_event([], finish), DONE]


TEXTLESS: list[tuple[list[bytes], str | Finish]] = [
    (said(([5], None), ([RETURN], None), finish="stop"), "without their text; vLLM does so before 0.32"),
    (said(([5], None), ([6], "a"), ([RETURN], ""), finish="stop"), "without their text"),
    (said(([5, 6, 7, 8], ""), finish="length"), "without their text"),
    (said(([RETURN], ""), finish="stop"), Finish.STOP),  # it had nothing to say
    (said(([5], ""), ([6], "é"), ([RETURN], ""), finish="stop"), Finish.STOP),  # the parts of a character
]


@pytest.mark.parametrize(("pieces", "outcome"), TEXTLESS)
def test_tokens_without_the_text_that_was_asked_for_are_no_answer(pieces: list[bytes], outcome: str | Finish) -> None:
    reader = KINDS[V].answer(Generation("", (1,), Sampling(9, stop_ids=STOPS), decoded=True))

    def whole() -> list[Chunk]:
        return [*(chunk for piece in pieces for chunk in reader.feed(piece)), reader.end()]

    if isinstance(outcome, Finish):
        assert whole()[-1].finish is outcome
        return
    with pytest.raises(EngineError, match=outcome):
        whole()


def test_events_of_a_kind_that_nobody_knows_yet_are_passed_over() -> None:
    strange = [b"event: ping\n\n", b"\n\n", b": \n\n", vllm.event({"choices": [], "metrics": {"a": 1}})]
    assert tokens(read(V, *strange, vllm.tokens_event([1], "stop"), *strange, DONE)) == [1]
    silent = answer(V)
    assert list(silent.feed(b"".join(strange) + vllm.usage_event(TokensEndpoint.GENERATE, 1, 0, 0))) == []
    assert not silent.begun


DEEP = b"[" * 100_000 + b"]" * 100_000


def faults() -> Iterator[tuple[str, bytes, type[EngineError], str]]:
    """A fault of a stream, and the error that it becomes."""
    for kind, voice in VOICES.items():
        event = voice.tokens([777], 3)
        yield kind, b"data: Hello.\n\n", EngineError, "unreadable event"
        yield kind, b'data: {"error":{"message":"\xff"}}\n\n', EngineError, "unreadable event"
        yield kind, b'data: {"x":' + DEEP + b"}\n\n", EngineError, "unreadable event"
        yield kind, b'data: {"error": "boom"}\n\n', EngineError, "status 500"
        for wrong in (b"[-777]", b"[99999999999999999999]", b'["777"]'):
            yield kind, event.replace(b"[777]", wrong), EngineError, "unreadable event"
    yield V, vllm.tokens_event([], "abort"), EngineUnavailable, "aborted"
    yield V, vllm.tokens_event([], "timeout"), EngineError, "'timeout'"
    yield V, vllm.tokens_event([], "content_filter" * 100), EngineError, "content_filter"
    yield L, llama.stop_event(0, "word"), EngineError, "'word'"


@pytest.mark.parametrize(("kind", "piece", "error", "words"), list(faults()))
def test_tokens_before_an_error_are_handed_over(kind: str, piece: bytes, error: type[EngineError], words: str) -> None:
    reader = answer(kind)
    chunks = reader.feed(VOICES[kind].tokens([65], 1) + piece + DONE)
    assert next(chunks).tokens == [65]
    with pytest.raises(EngineError, match=words) as raised:
        list(chunks)
    assert type(raised.value) is error
    assert len(str(raised.value)) < 200
    assert reader.begun


REFUSALS = {
    EngineRefused: (400, 413),
    ServerChanged: (401, 404),
    EngineOverloaded: (429, 503),
    EngineUnavailable: (502,),
    EngineError: (500,),
}


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize(("status", "error"), [(each, error) for error, given in REFUSALS.items() for each in given])
def test_an_error_is_the_same_over_http_and_in_a_stream(kind: str, status: int, error: type[EngineError]) -> None:
    over_http = KINDS[kind].refusal(status, b'{"error":{"message":"because"}}')
    with pytest.raises(EngineError) as in_a_stream:
        list(answer(kind).feed(VOICES[kind].error(status, "because")))
    for each in (over_http, in_a_stream.value):
        assert type(each) is error
        assert ("because" in str(each)) == (error is EngineRefused), "clients see it"
    assert len(str(KINDS[kind].refusal(status, b'{"error":{"message":"%b"}}' % (b"x" * 10_000)))) < 600
    for said in (b'{"error":"because"}', b'{"message":"because"}'):
        assert ("because" in str(KINDS[kind].refusal(status, said))) == (error is EngineRefused)
    for garbage in (b"", b"<html>", b"\xff", b"null", b'{"error": {"message": "\xff"}}'):
        assert str(KINDS[kind].refusal(400, garbage)) == "status 400"


# --- what a server says of itself --------------------------------------------------------------------------------

GARBAGE = [b"", b"Hello.", b"[]", b"null", b'{"data": 1}', b'[{"sampling_params": 1}]', b"\xff", b'[{"\xff": 1}]']


def test_how_vllm_samples_is_read_from_what_it_makes_of_a_request() -> None:
    body = b'[{"sampling_params":{"temperature":0.6,"top_p":0.95,"top_k":20,"stop":[]},"token_ids":[0]}]'
    assert vllm_servers.read_defaults(body) == Defaults(temperature=0.6, top_p=0.95, top_k=20)
    for garbage in GARBAGE:
        with pytest.raises(EngineError, match="vLLM server"):
            vllm_servers.read_defaults(garbage)


LLAMA_MODELS = {"data": [{"id": "gpt-oss-20b", "meta": {"n_vocab": 201_088, "n_ctx": 8192}}]}
QWEN_MODELS = {"data": [{"id": "qwen", "meta": {"n_vocab": 1000, "n_ctx": 8192}}]}
ANSWERS: dict[str, Any] = {
    "/v1/models": LLAMA_MODELS,
    "/props": {"total_slots": 3, "model_path": "/models/qwen3.gguf"},
    "/completion": {},
    "/tokenize": {"tokens": [{"id": 5, "piece": "<tool_call>"}]},
    "/apply-template": {"prompt": "Hello"},
}


async def facts(said: dict[str, Any], terms: ServerTerms, statuses: dict[str, int] | None = None) -> ServerFacts:
    """The facts that a llama.cpp server's answers give, by path."""
    answers = {**ANSWERS, **said}

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        assert (method == "POST") == (body is not None)
        return (statuses or {}).get(path, 200), msgspec.json.encode(answers[path])

    found = await KINDS[L].facts(ask, lambda: terms)
    assert await KINDS[L].serves(ask, found, lambda: terms)
    answers["/props"] = {"total_slots": 9}
    assert not await KINDS[L].serves(ask, found, lambda: terms)
    return found


async def test_a_llama_serves_what_it_says() -> None:
    guided = ServerFacts("/completion", "gpt-oss-20b", 8192, places=3, traits=frozenset({"llguidance"}))
    assert await facts({}, ServerTerms()) == guided


@pytest.mark.parametrize("probed", [200, 400])
async def test_only_a_llama_with_llguidance_holds_another_model_to_a_constraint(probed: int) -> None:
    probes = {"/completion": probed}
    other = await facts({"/v1/models": QWEN_MODELS}, ServerTerms(), probes)
    gpt_oss = await facts({}, ServerTerms(), probes)
    assert other.speech is not None
    assert (other.speech.family, other.constrains, bool(other.traits)) == ("qwen3", probed == 200, probed == 200)
    assert other.speech.shown == ShownTools(tools=False, calls=False, outputs=False)
    assert (gpt_oss.constrains, gpt_oss.traits) == (True, other.traits)


@pytest.mark.parametrize(
    ("said", "terms", "reason"),
    [
        ({}, ServerTerms("other"), "does not serve the model 'other'"),
        ({"/v1/models": {"data": []}}, ServerTerms(), "does not serve the model"),
        ({"/v1/models": {"data": [{"id": "x"}]}}, ServerTerms(), "HARMONIUM_CONTEXT_TOKENS"),
        ({"/v1/models": "?"}, ServerTerms(), "does not list its models; is it a"),
    ],
)
async def test_a_server_that_is_not_the_wanted_one_is_not_let_in(
    said: dict[str, Any], terms: ServerTerms, reason: str
) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        await facts(said, terms)
