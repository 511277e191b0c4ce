"""Log probabilities of an answer's tokens over HTTP: aligned with its text, in whichever way it comes."""

from typing import Any

import pytest

from service.harmony.tokens import encode
from service.settings.settings import Settings
from tests.support.engine.scripted import Stall
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


async def test_an_answer_that_is_held_has_them_too(settings: Settings) -> None:
    schema = {"type": "object", "properties": {"bird": {"type": "string"}}, "required": ["bird"]}
    form = {"format": {"type": "json_schema", "name": "bird", "schema": schema, "strict": True}}
    engine = scripted([[*thought("Hm."), *then(answer('{"bird":"鶴"}'))]])
    async with serving(settings, engine) as inside:
        found = await made(inside, input="hi", text=form, **SHOWN)

    check_aligned(logprobs(found), '{"bird":"鶴"}')
    assert len(engine.generations) == 2


async def test_a_stop_ends_them_where_it_ends_the_text(settings: Settings) -> None:
    async with serving(settings, scripted([answer("One, two, three.")])) as inside:
        found = await made(inside, input="hi", stop=[", three"], **SHOWN)

    assert found["output"][0]["content"][0]["text"] == "One, two"
    check_aligned(logprobs(found), "One, two")


async def test_the_worker_that_takes_over_has_those_of_what_was_said_before(settings: Settings) -> None:
    speak = going_on(SAID, lambda left: [left[:13], Stall()] if len(left) == len(SAID) else [left])
    async with serving(changed(settings, worker=False), scripted([])) as inside, inside.client() as client:
        async with serving(settings, scripted(speak)), opened_stream(client, **SHOWN) as (id, _):
            await said(client, id, "Une")
        async with serving(settings, scripted(speak)):
            response = await ended(client, id)
            events = await followed(inside, id)

    assert response.status == "completed"
    check_aligned(logprobs(response.to_dict()))
    assert events[-1]["response"] == response.to_dict()
