"""What is sent to an SGLang server and read from it, key by key; and what each trap of its wire becomes."""

from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.pass_through import Passed
from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Generation,
    Sampling,
    TokenLogprobs,
)
from service.engine.servers.kind import Facts, ServerChanged, Terms
from service.engine.sglang import wire
from service.engine.sglang.answer import MANY, SglangAnswer
from service.engine.sglang.servers import Sglang
from service.harmony.tokens import CALL, ENDOFTEXT, LAST_LEGAL, RETURN, STOPS
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.sglang.wire import DONE, LENGTH, STOP, abort, error, event, logprobs, sent

TAG = '{"type":"structural_tag","format":{"type":"token","token":200005}}'
SAMPLING = msgspec.structs.replace(ALL_SET, structural_tag=TAG)


def body(sampling: Sampling = SAMPLING, **fields: Any) -> dict[str, Any]:
    asked = Generation(**{"id": "resp_1", "prompt": array("I", [1, 2, 3]), "sampling": sampling, **fields})
    return msgspec.json.decode(wire.request_body(asked, "resp_1-a", 99))


def test_all_that_was_asked_for_is_sent_by_its_names() -> None:
    assert body(cache_salt="acme", priority=-3) == {
        "rid": "resp_1-a",
        "input_ids": [1, 2, 3],
        "stream": True,
        "priority": 3,
        "cache_salt": "acme",
        "extra_key": "acme",
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": 3,
        "sampling_params": {
            "max_new_tokens": 11,
            "temperature": 0.5,
            "top_p": 0.25,
            "top_k": 7,
            "min_p": 0.125,
            "presence_penalty": 1.5,
            "frequency_penalty": -1.5,
            "repetition_penalty": 1.25,
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "stream_interval": 1,
            "stop_token_ids": list(STOPS),
            "logit_bias": {str(ENDOFTEXT): -100.0},
            "sampling_seed": 42,
            "structural_tag": TAG,
        },
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"top_k": 0}, {"top_k": -1}),
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"seed": -1}, {"sampling_seed": 2**63 - 1}),
        ({"seed": None}, {"sampling_seed": 99}),
        ({"stop_ids": (RETURN,)}, {"logit_bias": {str(ENDOFTEXT): -100.0, str(CALL): -100.0}}),
        ({"stop_ids": ()}, {"ignore_eos": True}),
    ],
)
def test_what_has_another_form_there_gets_it(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= body(msgspec.structs.replace(SAMPLING, **changed))["sampling_params"].items()


def test_ignoring_the_model_s_own_ends_would_switch_off_ours() -> None:
    assert "ignore_eos" not in body()["sampling_params"]
    assert "stop_token_ids" not in body(Sampling(5))["sampling_params"]


def test_what_was_not_asked_for_is_left_out() -> None:
    asked = body(Sampling(5, stop_ids=(*STOPS, ENDOFTEXT)))
    assert not {"cache_salt", "extra_key", "return_logprob"} & asked.keys()
    assert not {"logit_bias", "structural_tag"} & asked["sampling_params"].keys()


def test_the_log_probability_of_the_sampled_token_alone_may_be_asked_for() -> None:
    assert body(Sampling(5, logprobs=0))["top_logprobs_num"] == 0


MALFORMED = ["{", "[]", "{}", '{"format":[]}', '{"format":{"type":"regex","pattern":"("}}', "\ud800"]
MALFORMED += ['{"format":{"type":"sequence","elements":[{"type":"optional","content":5}]}}']
MALFORMED += ['{"format":' + '{"type":"optional","content":' * 3000 + "{}" + "}" * 3000 + "}"]


@pytest.mark.parametrize("tag", MALFORMED)
def test_a_constraint_that_can_not_be_read_never_reaches_it(tag: str) -> None:
    with pytest.raises(EngineRefused, match="constraint can't be read"):
        body(Sampling(5, structural_tag=tag))


def test_an_id_that_is_no_token_never_reaches_it() -> None:
    with pytest.raises(EngineRefused, match=f"{LAST_LEGAL + 1} is no token id"):
        body(prompt=[1, LAST_LEGAL + 1])


def test_every_request_has_an_id_of_its_own_and_is_ended_by_that() -> None:
    kind, facts = Sglang(), Facts("/generate", "m", 9)
    asked = [kind.request(facts, Generation("resp_1", (1,), Sampling(5))) for _ in range(2)]
    rids = [msgspec.json.decode(each.body)["rid"] for each in asked]
    assert all(rid.startswith("resp_1-") for rid in rids)
    assert rids[0] != rids[1]
    ends = [(each.end.path, msgspec.json.decode(each.end.body)) for each in asked if each.end]
    assert ends == [("/abort_request", {"rid": rid}) for rid in rids]


# --- answers --------------------------------------------------------------------------------------------------


def read(*pieces: bytes, logprobs: int | None = None, ending: bool = False) -> list[Chunk]:
    """The chunks of a stream."""
    answer = SglangAnswer(logprobs=logprobs, on_repeated=list)
    answer.ending = ending
    return [*(chunk for piece in pieces for chunk in answer.feed(piece)), answer.end()]


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


def test_lists_of_all_ids_so_far_are_read_once() -> None:
    chunks = read(event([5], 1), event([5, 6, 7], 3), event([5, 6, 7, RETURN], 4, STOP), DONE)
    assert [chunk.tokens for chunk in chunks] == [[5], [6, 7], [RETURN], []]
    assert (chunks[0].cached_tokens, chunks[-1].finish) == (64, Finish.STOP)


def test_lists_of_new_ids_are_read_as_they_come() -> None:
    chunks = read(event([5], 1), event([6, 7], 3), event([RETURN], 4, STOP), DONE)
    assert [chunk.tokens for chunk in chunks] == [[5], [6, 7], [RETURN], []]


def test_ids_that_a_list_has_too_early_are_taken_when_they_are_counted() -> None:
    chunks = read(event([5, 6], 1), event([5, 6, 7], 2), event([5, 6, 7], 3, LENGTH))
    assert [chunk.tokens for chunk in chunks] == [[5], [6], [7], []]
    assert chunks[-1].finish is Finish.LENGTH


def test_an_event_that_repeats_the_last_id_adds_nothing() -> None:
    """So is what is said of one that was aborted before its turn came again."""
    chunks = read(event([5], 1), event([6], 2), event([6], 2, abort("Aborted")), ending=True)
    assert (ids_of(chunks), chunks[-1].finish) == ([5, 6], Finish.ABORT)


def test_who_asked_for_an_abort_gets_what_came_before_it() -> None:
    assert ids_of(read(event([5], 1), event([5, 6], 2, abort("Aborted")), ending=True)) == [5, 6]


@settings(deadline=None)
@given(
    ids=st.lists(st.integers(0, LAST_LEGAL), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30)),
    bytes_cuts=st.lists(st.integers(0, 9000), max_size=9),
    incremental=st.booleans(),
    ahead=st.integers(0, 3),
)
def test_a_stream_reads_the_same_in_both_forms_wherever_it_is_cut(
    ids: list[int], cuts: list[int], bytes_cuts: list[int], incremental: bool, ahead: int
) -> None:
    places = sorted({min(cut, len(ids)) for cut in cuts} | {len(ids)})
    given = [TokenLogprobs(-id / 1e6, ((id, -id / 1e6),)) for id in ids]
    whole, before = b"", 0
    for place in places:
        first, last = (before, place) if incremental else (0, min(place + ahead, len(ids)))
        more = logprobs(ids[first:last], given[first:last], tops=True)
        whole += event(ids[first:last], place, STOP if place == len(ids) else None, **more)
        before = place
    edges = [0, *sorted(min(cut, len(whole)) for cut in bytes_cuts), len(whole)]
    chunks = read(*(whole[a:b] for a, b in pairwise(edges)), logprobs=1)
    assert ids_of(chunks) == ids
    assert [each for chunk in chunks for each in chunk.logprobs or ()] == given


def test_log_probabilities_come_with_each_token_and_the_likeliest_first() -> None:
    listed = {"output_token_logprobs": [[None, 64, None]], "output_top_logprobs": [[[-2.0, 65, None], [-1.0, 66, ""]]]}
    (chunk, _) = read(event([64], 1, STOP, **listed), logprobs=1)
    assert chunk.logprobs == [TokenLogprobs(LEAST_LOGPROB, ((66, -1.0),))]
    (chunk, _) = read(event([64], 1, STOP, output_token_logprobs=[[-1e9, 64]]), logprobs=0)
    assert chunk.logprobs == [TokenLogprobs(LEAST_LOGPROB)]


@pytest.mark.parametrize(
    "listed",
    [
        {},
        {"output_token_logprobs": []},
        {"output_token_logprobs": [[-1.0, 65, None]]},
    ],
)
def test_log_probabilities_that_are_missing_are_an_error_and_no_silence(listed: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="without their log probabilities"):
        read(event([64], 1, STOP, **listed), logprobs=0)


def test_alternatives_of_some_tokens_alone_are_an_error_too() -> None:
    listed = {"output_token_logprobs": [[-1.0, 64], [-1.0, 65]], "output_top_logprobs": [[]]}
    with pytest.raises(EngineError, match="without their log probabilities"):
        read(event([64, 65], 2, STOP, **listed), logprobs=1)


FAULTS: dict[str, tuple[bytes, type[EngineError], str]] = {
    "a refusal": (error("too long"), EngineRefused, "^too long$"),
    "an error without a code": (sent({"error": {"message": "x", "code": None}}), EngineError, "status 500"),
    "an error that is a text": (sent({"error": "x"}), EngineError, "status 500"),
    "a constraint that failed": (event([0], 1, abort("bad grammar", 400)), EngineRefused, "^bad grammar$"),
    "overload": (event([], 0, abort("The request queue is full.", 503)), EngineOverloaded, "no more work"),
    "a failure": (event([], 0, abort("boom", 500)), EngineError, "status 500"),
    "an abort of its own": (event([5], 1, abort("Aborted")), EngineUnavailable, "aborted"),
    "numbers that are none": (event([5], 1, {"type": "stop", "matched": "NaN happened"}), EngineError, "NaN happened"),
    "an end of another kind": (event([5], 1, {"type": "tired"}), EngineError, "'tired'"),
    "garbage": (b"data: Hello.\n\n", EngineError, "no event"),
    "an array": (sent([]), EngineError, "no event"),
    "no UTF-8": (b'data: {"meta_info":{"finish_reason":{"type":"\xff"}}}\n\n', EngineError, "no event"),
    "ids of another kind": (event([], 1) .replace(b'"output_ids":[]', b'"output_ids":["5"]'), EngineError, "no event"),
    "an id that is no token": (event([], 1).replace(b"[]", b"[201088]", 1), EngineError, "no event"),
    "an id below all": (event([], 1).replace(b"[]", b"[-1]", 1), EngineError, "no event"),
    "no count": (sent({"output_ids": [5], "meta_info": {}}), EngineError, "how many tokens"),
    "a count below none": (sent({"output_ids": [], "meta_info": {"completion_tokens": -1}}), EngineError, "no event"),
    "nothing known of it": (sent({"output_ids": [5]}), EngineError, "how many tokens"),
    "fewer ids than counted": (event([5], 3), EngineError, "fewer tokens"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_in_a_stream_is_told(fault: str) -> None:
    piece, kind, words = FAULTS[fault]
    with pytest.raises(EngineError, match=words) as raised:
        read(piece)
    assert type(raised.value) is kind
    assert len(str(raised.value)) < 200


def test_fewer_ids_than_counted_are_missed_in_the_middle_too() -> None:
    with pytest.raises(EngineError, match="fewer tokens"):
        read(event([5, 6], 2), event([7], 4))


def test_what_comes_behind_the_finish_says_nothing() -> None:
    assert ids_of(read(event([5], 1, STOP), DONE, DONE, event([5, 6], 2), DONE)) == [5]


def test_a_stream_that_ends_too_early_is_no_answer() -> None:
    for pieces in ([], [DONE], [event([5], 1)], [event([5], 1, STOP)[:-1]]):
        with pytest.raises(EngineBroke, match="broke off"):
            read(*pieces)


def test_long_lists_that_come_again_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    kind, generation = Sglang(), Generation("resp_1", (1,), Sampling(5))
    for _ in range(2):
        answer = kind.answer(generation)
        for count in range(MANY, MANY + 5):
            list(answer.feed(event(range(count), count)))
    assert ["--incremental-streaming-output" in record.message for record in caplog.records] == [True]


def test_new_ids_alone_are_nothing_to_tell_of(caplog: pytest.LogCaptureFixture) -> None:
    answer = Sglang().answer(Generation("resp_1", (1,), Sampling(5)))
    list(answer.feed(event([1], 1) + event([2] * 2 * MANY, 1 + 2 * MANY)))
    assert caplog.records == []


def test_what_is_passed_on_is_salted_and_goes_first_as_what_we_ask() -> None:
    passed = Sglang().passed(Passed("r", "/v1/chat/completions", {}, cache_salt="acme", priority=-1))
    assert passed == {"cache_salt": "acme", "extra_key": "acme", "priority": 1}


@pytest.mark.parametrize("said", [{"error": "secret"}, {"error": {"message": "secret"}}])
def test_only_a_refusal_repeats_the_server_s_words(said: object) -> None:
    for status in (400, 401, 404, 429, 500, 503):
        told = str(wire.read_refusal(status, msgspec.json.encode(said)))
        assert ("secret" in told) == (status == 400)
    assert str(wire.read_refusal(400, b"<html>")) == str(wire.read_refusal(400, b"{}")) == "status 400"


@pytest.mark.parametrize("read", [wire.read_event, wire.read_models, wire.read_info])
@pytest.mark.parametrize("body", [b"", b"Hello.", b"[]", b"null", b'{"data":1,"model_type":1,"output_ids":1}', b"\xff"])
def test_garbage_is_an_error_of_the_port(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(EngineError, match="SGLang server"):
        read(body)


# --- what a server says of itself --------------------------------------------------------------------------------

MODELS = {"data": [{"id": "gpt-oss-20b", "max_model_len": 8192}, {"id": "lora", "max_model_len": None}]}


async def facts(
    models: object = MODELS,
    about: object = {"model_type": "gpt_oss", "is_generation": True},
    *,
    status: int = 200,
    terms: Terms = Terms(),  # noqa: B008 - frozen
) -> Facts:
    """What is made of a server's answers."""
    said = {"/model_info": about, "/v1/models": models}

    async def ask(method: str, path: str, _: bytes | None) -> tuple[int, bytes]:
        assert method == "GET"
        return status, msgspec.json.encode(said[path])

    kind = Sglang()
    found = await kind.facts(ask, lambda: terms)
    assert await kind.serves(ask, found, lambda: terms)
    return found


async def test_what_a_server_serves_is_what_it_says() -> None:
    assert await facts() == Facts("/generate", "gpt-oss-20b", 8192)
    assert (await facts(terms=Terms("lora", 4096))).context_tokens == 4096


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"terms": Terms("other")}, "does not serve the model 'other'; see its --served-model-name"),
        ({"models": {"data": []}}, "does not serve the model"),
        ({"terms": Terms("lora")}, "HARMONIUM_CONTEXT_TOKENS"),
        ({"about": {"model_type": "llama"}}, "is of the type 'llama', and gpt-oss 'gpt_oss'"),
        ({"about": {"model_type": None}}, "is of the type None"),
        ({"models": "?"}, "does not say what it serves; is it one"),
        ({"about": []}, "does not say what kind of model it has; is it one"),
    ],
)
async def test_a_server_of_something_else_is_not_let_in(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        await facts(**said)


@pytest.mark.parametrize(("status", "words"), [(401, "HARMONIUM_ENGINE_API_KEY"), (404, "any more")])
async def test_a_server_that_does_not_answer_so_says_why(status: int, words: str) -> None:
    with pytest.raises(ServerChanged, match=words):
        await facts(status=status)
