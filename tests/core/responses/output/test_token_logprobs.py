"""Log probabilities of an answer's tokens: each by itself, beside the text that they made, and over HTTP."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given

from service.api import events
from service.engine.port import LEAST_LOGPROB, TokenLogprobs
from service.harmony import tokens
from service.harmony.tokens import encode
from service.process import Settings
from service.responses.output.logprobs import shown_logprob
from service.responses.output.machine import Ending
from tests.support.engine.scripted import Stall
from tests.support.oracles.event_grammar import check_stream
from tests.support.responses import samples
from tests.support.responses.samples import as_json, byte_by_byte, harmony, split
from tests.support.service.background import changed, ended, going_on, opened_stream, said
from tests.support.service.background import streamed as followed
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.seen import made, streamed

TEXT = "Une grue 🏗️ et 鶴."
SAID = [*thought("Birds."), *then(answer(TEXT))]
SHOWN: Any = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


def logprobs(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the answer, the last item."""
    return response["output"][-1]["content"][0]["logprobs"]


def check_aligned(found: list[dict[str, Any]], text: str = TEXT, top: int = 2) -> None:
    """They are those of the text's tokens, one by one."""
    assert bytes(byte for each in found for byte in each["bytes"]).decode() == text
    assert len(found) == len(encode(text))
    assert {each["logprob"] for each in found} == {-0.25}
    assert {len(each["top_logprobs"]) for each in found} == {top}


async def test_each_token_has_its_bytes_also_where_it_is_a_piece_of_a_character(settings: Settings) -> None:
    engine = scripted([[token] for token in SAID])
    async with serving(settings, engine) as inside:
        events = await streamed(inside, input="hi", **SHOWN)

    found = logprobs(events[-1]["response"])
    check_aligned(found)
    assert any("�" in each["token"] for each in found)
    assert found[0]["top_logprobs"][0]["token"] == found[0]["token"]
    told = [each for event in events if event["type"] == "response.output_text.delta" for each in event["logprobs"]]
    assert [each["token"] for each in told] == [each["token"] for each in found]
    assert all("bytes" not in each for each in told)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert all(event["logprobs"] for event in deltas)
    assert engine.generations[0].sampling.logprobs == 2


@pytest.mark.parametrize("body", [{}, {"top_logprobs": 5}], ids=["nothing", "no include"])
async def test_without_the_include_there_are_none(settings: Settings, body: Any) -> None:
    engine = scripted([SAID])
    async with serving(settings, engine) as inside:
        found = await made(inside, input="hi", **body)

    assert logprobs(found) == []
    assert found["top_logprobs"] == body.get("top_logprobs", 0)
    assert engine.generations[0].sampling.logprobs is None


async def test_a_stop_ends_them_where_it_ends_the_text(settings: Settings) -> None:
    async with serving(settings, scripted([answer("One, two, three.")])) as inside:
        found = await made(inside, input="hi", stop=[", three"], **SHOWN)

    assert found["output"][0]["content"][0]["text"] == "One, two"
    check_aligned(logprobs(found), "One, two")


async def test_the_worker_that_takes_over_has_those_of_what_was_said_before(settings: Settings) -> None:
    speak = going_on(SAID, lambda left: [left[:13], Stall()] if len(left) == len(SAID) else [left])
    async with serving(changed(settings, embedded_worker=False), scripted([])) as inside, inside.client() as client:
        async with serving(settings, scripted(speak)), opened_stream(client, **SHOWN) as (id, _):
            await said(client, id, "Une")
        async with serving(settings, scripted(speak)):
            response = await ended(client, id)
            events = await followed(inside, id)

    assert response.status == "completed"
    check_aligned(logprobs(response.to_dict()))
    assert events[-1]["response"] == response.to_dict()


def shown_token(token: int, logprob: float = -0.5, *top: tuple[int, float]) -> tuple[str, float, list[int]]:
    found = shown_logprob(token, TokenLogprobs(logprob, top))
    return found.token, found.logprob, found.bytes


def sampled_events(ids: list[int], places: list[int], ending: Ending = Ending.STOP) -> list[events.Event]:
    """The events of a generation whose tokens all come with log probabilities."""
    machine = samples.machine(msgspec.structs.replace(samples.RULES, top_logprobs=1))
    stream = machine.begin()
    for chunk in split(ids, places):
        stream += samples.fed(machine, chunk, [TokenLogprobs(-0.5, ((token, -0.5),)) for token in chunk])
    stream += machine.end(ending)
    return stream + machine.terminal(machine.result(ending, now=samples.NOW))


def content_of(content: list[int]) -> list[int]:
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
    assert shown_token(token) == (name, -0.5, [])


@pytest.mark.parametrize("logprob", [-math.inf, math.nan, -1e30, LEAST_LOGPROB])
def test_no_probability_at_all_is_the_least(logprob: float) -> None:
    found = shown_logprob(0, TokenLogprobs(logprob, ((1, logprob),)))

    assert (found.logprob, found.top_logprobs[0].logprob) == (LEAST_LOGPROB, LEAST_LOGPROB)
    assert msgspec.json.decode(msgspec.json.encode(found))["logprob"] == LEAST_LOGPROB


# --- beside the text ---


@given(content=samples.contents, places=samples.cuts)
def test_the_bytes_of_the_tokens_are_the_text_across_characters(content: tuple[int, ...], places: list[int]) -> None:
    stream = sampled_events(content_of(list(content)), places)
    output = check_stream([as_json(event) for event in stream])["output"]
    (part,) = output[0]["content"]
    pieces = [bytes(each["bytes"]) for each in part["logprobs"]]

    assert b"".join(pieces).decode() == part["text"]
    assert len(pieces) == len(content)


def test_a_character_cut_short_keeps_the_log_probabilities_of_its_pieces() -> None:
    ids = content_of(byte_by_byte("a🙂"))[:-2]
    response = check_stream([as_json(event) for event in sampled_events(ids, [], Ending.LENGTH)])
    (part,) = response["output"][0]["content"]

    assert (part["text"], len(part["logprobs"])) == ("a\ufffd", 4)
