"""What is sent to a llama.cpp server and read from it, key by key; and what each trap of its wire becomes."""

from typing import Any

import msgspec
import pytest

from service.engine.llama import servers as wire
from service.engine.llama.servers import Llama, LlamaAnswer
from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Generation,
    Sampling,
    TokenLogprobs,
)
from service.engine.servers.kind import Facts, ServerChanged, Terms
from service.harmony.tokens import CALL, ENDOFTEXT, RETURN, STOPS
from service.markup.speech import Shown
from tests.support.engine.demo_prompts import ALL_SET
from tests.support.llama.wire import event, stop_event

LLAMA = Llama(shared=False)


def body(sampling: Sampling, *, cached: bool = True, guided: bool = False) -> dict[str, Any]:
    asked = Generation("resp_1", (1, 2, 3), sampling)
    return msgspec.json.decode(wire.request_body(asked, 4096, cached=cached, guided=guided))


def test_all_that_bears_on_sampling_is_sent_as_its_defaults_are_not_neutral() -> None:
    assert body(ALL_SET) == {
        "prompt": [1, 2, 3],
        "stream": True,
        "return_tokens": True,
        "timings_per_token": True,
        "n_predict": 11,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.25,
        "min_p": 0.125,
        "typical_p": 1.0,
        "repeat_penalty": 1.25,
        "presence_penalty": 1.5,
        "frequency_penalty": -1.5,
        "repeat_last_n": 4096,
        "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
        "cache_prompt": True,
        "seed": 42,
        "n_probs": 3,
        "logit_bias": [[ENDOFTEXT, False]],
    }


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"seed": None}, {"seed": -1}),
        ({"seed": 2**32 - 1}, {"seed": 0}),
        ({"seed": -5}, {"seed": 2**32 - 6}),
        ({"logprobs": 0}, {"n_probs": 1}),
        ({"stop_ids": ()}, {"logit_bias": [[ENDOFTEXT, False], [RETURN, False], [CALL, False]]}),
        ({"stop_ids": (RETURN,)}, {"logit_bias": [[ENDOFTEXT, False], [CALL, False]]}),
    ],
)
def test_what_has_another_form_there_gets_it(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= body(msgspec.structs.replace(ALL_SET, **changed)).items()


def test_what_was_not_asked_for_is_left_out() -> None:
    asked = body(Sampling(5, stop_ids=(*STOPS, ENDOFTEXT)), cached=False)
    assert not {"n_probs", "logit_bias", "grammar", "json_schema"} & asked.keys()
    assert asked["cache_prompt"] is False


def test_a_constraint_that_can_not_be_read_is_refused() -> None:
    with pytest.raises(EngineRefused, match="constraint can't be read"):
        body(msgspec.structs.replace(ALL_SET, structural_tag="{"))


SCHEMA = (
    '{"format":{"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"items":{"properties":{}}}}}}}'
)


@pytest.mark.parametrize("guided", [False, True])
def test_a_schema_s_objects_are_closed_and_no_mark_may_be_in_its_texts(guided: bool) -> None:
    asked = body(msgspec.structs.replace(ALL_SET, structural_tag=SCHEMA), guided=guided)
    grammar = asked.get("grammar", "")
    closed = grammar.partition("%json ")[2] if guided else msgspec.json.encode(asked["json_schema"]).decode()
    assert closed.count('"additionalProperties":false') == 2
    assert not guided or f"(<[{RETURN}]> | <[{CALL}]>)" in grammar
    assert {id for id, _ in asked["logit_bias"]} == set(range(199998, 200019)) - set(STOPS)


def test_the_names_of_rules_have_no_underscores() -> None:
    tag = msgspec.json.encode({"format": {"type": "grammar", "grammar": 'root ::= a_b "a_b" [a_b]\na_b ::= "c"\n'}})
    asked = body(msgspec.structs.replace(ALL_SET, structural_tag=tag.decode()))
    assert asked["grammar"] == 'root ::= a-b "a_b" [a_b]\na-b ::= "c"\n'


# --- answers --------------------------------------------------------------------------------------------------


def read(*pieces: bytes, logprobs: int | None = None, stop_ids: tuple[int, ...] = STOPS) -> list[Chunk]:
    answer = LlamaAnswer(logprobs=logprobs, stop_ids=stop_ids)
    chunks: list[Chunk] = []
    for piece in pieces:
        if not answer.over:
            chunks += answer.feed(piece)
    return [*chunks, answer.end()]


def test_a_stream_is_its_ids_its_finish_and_what_was_cached() -> None:
    *chunks, last = read(b": ping\n\n", event("a", [64], 1), event("", [RETURN], 2), stop_event(2))
    assert [token for chunk in chunks for token in chunk.tokens] == [64, RETURN]
    assert (chunks[0].cached_tokens, last.finish) == (64, Finish.STOP)


def test_a_stop_id_that_the_server_does_not_know_ends_it_here() -> None:
    *chunks, last = read(event("a", [64], 1), event("b", [65], 2), event("c", [66], 3), stop_ids=(*STOPS, 65))
    assert [token for chunk in chunks for token in chunk.tokens] == [64, 65]
    assert last.finish is Finish.STOP


@pytest.mark.parametrize(("stop_type", "finish"), [("eos", Finish.STOP), ("limit", Finish.LENGTH)])
def test_why_it_stopped_is_told(stop_type: str, finish: Finish) -> None:
    assert read(event("a", [64], 1), stop_event(1, stop_type))[-1].finish is finish


def test_log_probabilities_come_with_each_token_and_those_of_found_ones_are_unknown() -> None:
    probability = {"id": 64, "token": "a", "bytes": [97], "logprob": -0.5}
    given = probability | {"top_logprobs": [probability, {"id": 65, "logprob": None}, {"id": 66, "logprob": -1e9}]}
    (chunk, _) = read(event("a", [64], 1, completion_probabilities=[given]) + stop_event(1), logprobs=3)
    assert chunk.logprobs == [TokenLogprobs(-0.5, ((64, -0.5), (65, LEAST_LOGPROB), (66, LEAST_LOGPROB)))]
    with pytest.raises(EngineError, match="without their log probabilities"):
        read(event("a", [64], 1), logprobs=0)


def test_a_stop_of_a_kind_that_nobody_asked_for_is_an_error() -> None:
    with pytest.raises(EngineError):
        read(stop_event(0, "word"))


def test_only_a_refusal_repeats_the_server_s_words() -> None:
    for status in (400, 401, 404, 429, 500, 503):
        told = str(LLAMA.refused(status, b'{"error":{"code":1,"message":"the secret"}}'))
        assert ("secret" in told) == (status == 400)
    assert str(LLAMA.refused(400, b"<html>")) == "status 400"


# --- what a server says of itself --------------------------------------------------------------------------------

MODELS = {"data": [{"id": "gpt-oss-20b", "meta": {"n_vocab": 201_088, "n_ctx": 8192}}]}


async def facts(
    models: object = MODELS, props: object = {"total_slots": 3}, *, probed: int = 200, model: str = ""
) -> Facts:
    """What is made of a server's answers."""
    said = {"/props": (200, props), "/v1/models": (200, models), wire.COMPLETION: (probed, {})}
    said[wire.TOKENIZE] = 200, {"tokens": [{"id": 5, "piece": "<tool_call>"}]}
    said[wire.TEMPLATE] = 200, {"prompt": "Hello"}

    async def ask(method: str, path: str, _: bytes | None) -> tuple[int, bytes]:
        assert method == ("POST" if path in (wire.COMPLETION, wire.TOKENIZE, wire.TEMPLATE) else "GET")
        status, content = said[path]
        return status, msgspec.json.encode(content)

    kind, terms = Llama(shared=False), Terms(model)
    found = await kind.facts(ask, lambda: terms)
    assert await kind.serves(ask, found, lambda: terms)
    return found


async def test_what_a_server_serves_is_what_it_says() -> None:
    found = await facts()
    assert (found.model, found.context_tokens, found.places) == ("gpt-oss-20b", 8192, 3)
    assert found.traits == {"llguidance"}
    assert (await facts(probed=400)).traits == frozenset()


@pytest.mark.parametrize("probed", [200, 400])
async def test_only_a_server_with_llguidance_holds_another_model_to_a_constraint(probed: int) -> None:
    models = {"data": [{"id": "qwen", "meta": {"n_vocab": 1000, "n_ctx": 8192}}]}
    props = {"total_slots": 3, "model_path": "/models/qwen3.gguf"}
    other, gpt_oss = await facts(models, props, probed=probed), await facts(probed=probed)
    assert other.speech is not None
    assert (other.speech.family, other.constrains) == ("qwen3", probed == 200)
    assert other.speech.shown == Shown(tools=False, calls=False, outputs=False)
    assert gpt_oss.constrains


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"model": "other"}, "does not serve the model 'other'; see its --alias"),
        ({"models": {"data": []}}, "does not serve the model"),
        ({"models": {"data": [{"id": "x"}]}}, "does not say how long"),
        ({"models": "?"}, "does not say what it serves; is it one"),
        ({"props": []}, "does not say how it is set up; is it one"),
    ],
)
async def test_a_server_of_something_else_is_not_let_in(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineUnavailable, match=reason):
        await facts(**said)


async def test_a_server_with_another_key_says_so() -> None:
    with pytest.raises(ServerChanged, match="HARMONIUM_ENGINE_API_KEY"):
        await facts(probed=401)


@pytest.mark.parametrize(
    ("shared", "salts", "cached"),
    [
        (False, ["a", "a", "a"], [True, True, True]),
        (False, ["a", "b", "a"], [True, False, False]),
        (False, [None, "a", "a"], [True, False, False]),
        (True, ["a", "a", "a"], [False, False, False]),
    ],
)
def test_prompts_are_cached_as_long_as_they_are_of_one_salt(
    shared: bool, salts: list[str | None], cached: list[bool]
) -> None:
    kind = Llama(shared=shared)
    asked = [
        kind.request(Facts("/completion", "m", 9), Generation("", (1,), ALL_SET, cache_salt=each)) for each in salts
    ]
    assert [msgspec.json.decode(each.body)["cache_prompt"] for each in asked] == cached


@pytest.mark.parametrize("id", ["-1", str(1 << 31), str(1 << 64), "1.5", '"1"'])
def test_a_prompt_of_ids_that_no_vocabulary_has_is_an_error(id: str) -> None:
    with pytest.raises(EngineError, match="something else than it was asked for"):
        wire.read(f'{{"tokens": [1, {id}]}}'.encode(), wire.Ids)
