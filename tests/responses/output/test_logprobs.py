"""Log probabilities as they are shown: beside the text that their tokens made, with names and bytes that add up."""

import math

import msgspec
import pytest
from hypothesis import given

from service.api import events
from service.engine.port import LEAST_LOGPROB, TokenLogprobs
from service.harmony import tokens
from service.responses.output.emitter import MAX_LOGPROB_BYTES
from service.responses.output.logprobs import shown_logprob, without_bytes
from service.responses.output.machine import Ending
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import as_json, byte_by_byte, harmony, split


def shown(token: int, logprob: float = -0.5, *top: tuple[int, float]) -> tuple[str, float, list[int]]:
    found = shown_logprob(token, TokenLogprobs(logprob, top))
    return found.token, found.logprob, found.bytes


def sampled(ids: list[int], places: list[int], ending: Ending = Ending.STOP) -> list[events.Event]:
    """The events of a generation whose tokens all come with log probabilities."""
    machine = samples.machine(msgspec.structs.replace(samples.RULES, top_logprobs=1))
    stream = machine.begin()
    for chunk in split(ids, places):
        stream += samples.fed(machine, chunk, [TokenLogprobs(-0.5, ((token, -0.5),)) for token in chunk])
    stream += machine.end(ending)
    return stream + machine.terminal(machine.result(ending, now=samples.NOW))


def answer(content: list[int]) -> list[int]:
    return [*harmony("<|channel|>final<|message|>"), *content, tokens.RETURN]


# --- one token ---


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (tokens.RETURN, "<|return|>"),
        (tokens.END, "<|end|>"),
        (200013, "<|reserved_200013|>"),
        (tokens.LAST_LEGAL + 1, "<|reserved_201088|>"),
        (-1, "<|reserved_-1|>"),
    ],
)
def test_a_mark_has_a_name_and_no_bytes(token: int, name: str) -> None:
    assert shown(token) == (name, -0.5, [])


@pytest.mark.parametrize("logprob", [-math.inf, math.nan, -1e30, LEAST_LOGPROB])
def test_no_probability_at_all_is_the_least(logprob: float) -> None:
    found = shown_logprob(0, TokenLogprobs(logprob, ((1, logprob),)))

    assert (found.logprob, found.top_logprobs[0].logprob) == (LEAST_LOGPROB, LEAST_LOGPROB)
    assert msgspec.json.decode(msgspec.json.encode(found))["logprob"] == LEAST_LOGPROB


@pytest.mark.parametrize("logprob", [0.0, 1e-7, math.inf])
def test_nothing_is_likelier_than_certain(logprob: float) -> None:
    assert shown(0, logprob)[1] == 0.0


def test_alternatives_keep_their_order_and_events_have_no_bytes() -> None:
    found = shown_logprob(0, TokenLogprobs(-1.5, ((1, -0.5), (0, -1.5))))

    assert [each.token for each in found.top_logprobs] == [shown(1)[0], shown(0)[0]]
    assert as_json(without_bytes([found])) == [
        {
            "token": found.token,
            "logprob": -1.5,
            "top_logprobs": [{"token": each.token, "logprob": each.logprob} for each in found.top_logprobs],
        }
    ]


# --- beside the text ---


@given(content=samples.contents, places=samples.cuts)
def test_the_bytes_of_the_tokens_are_the_text_across_characters(content: tuple[int, ...], places: list[int]) -> None:
    stream = sampled(answer(list(content)), places)
    output = check_stream([as_json(event) for event in stream])["output"]
    (part,) = output[0]["content"]
    pieces = [bytes(each["bytes"]) for each in part["logprobs"]]

    assert b"".join(pieces).decode() == part["text"]
    assert len(pieces) == len(content)


def test_a_character_cut_short_keeps_the_log_probabilities_of_its_pieces() -> None:
    ids = answer(byte_by_byte("a🙂"))[:-2]
    response = check_stream([as_json(event) for event in sampled(ids, [], Ending.LENGTH)])
    (part,) = response["output"][0]["content"]

    assert (part["text"], len(part["logprobs"])) == ("a\ufffd", 4)


def test_beyond_what_an_item_shows_tokens_have_no_log_probabilities() -> None:
    top = tuple((token, -1.0) for token in range(1_000, 1_020))
    ids = answer(tokens.encode("word " * 5_000))
    machine = samples.machine(msgspec.structs.replace(samples.RULES, top_logprobs=20))
    stream = machine.begin() + samples.fed(machine, ids, [TokenLogprobs(-0.5, top)] * len(ids))
    stream += machine.end(Ending.STOP)
    response = check_stream([as_json(event) for event in stream + machine.terminal(machine.result(Ending.STOP, now=1))])
    (part,) = response["output"][0]["content"]

    assert part["text"] == "word " * 5_000
    assert MAX_LOGPROB_BYTES < len(msgspec.json.encode(part["logprobs"])) < MAX_LOGPROB_BYTES + 10_000
