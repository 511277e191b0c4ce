"""Background responses whose engine or worker fails: they go on from what was said, or end saying what happened."""

from functools import partial
from typing import Any

import pytest
from openai.types.responses import Response

from service.api import events
from service.api.response import decode_response
from service.background.timing import Timing
from service.backoff import Backoff
from service.engine.port import EngineError, EngineRefused, Finish
from service.harmony.tokens import RETURN, encode
from service.process import Settings
from service.responses.output.journal import Batch, encode_batch
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from tests.support.engine.scripted import Die, EndWithoutFinish, FinishWith, ScriptedEngine
from tests.support.oracles.event_grammar import check_stream
from tests.support.service import inside
from tests.support.service.background import (
    changed,
    ended,
    going_on,
    opened_stream,
    retrieved,
    streamed,
    submitted,
)
from tests.support.service.inside import answer, opened, scripted, then, thought

WORDS = "One, two, three, four, five, six, seven, eight, nine, ten."
SPOKEN = [*thought("I count."), *then(answer(WORDS))]
DEATH = Die(EngineError("out of memory"))


serving = partial(inside.serving, timing=Timing(poll_seconds=0.1, engine_away=Backoff(0.01, 0.05)))
"""The service, with a worker that tries again soon."""


async def made(settings: Settings, engine: ScriptedEngine) -> Response:
    """A background response as it ended; its stream is whole and says the same."""
    async with serving(settings, engine) as inside, inside.client() as client, opened_stream(client) as (id, _):
        found = await ended(client, id)
        assert check_stream(await streamed(inside, id)) == found.to_dict()
        return found


async def test_what_the_engine_refuses_fails_at_once_and_says_why(settings: Settings) -> None:
    engine = scripted([Die(EngineRefused("too hot"))])
    found = await made(settings, engine)
    assert (found.status, found.output) == ("failed", [])
    assert found.error
    assert found.error.message == "The engine refused the request: too hot"
    assert len(engine.generations) == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [(DEATH, "The engine failed: out of memory"), (EndWithoutFinish(), "The engine failed: it stopped")],
    ids=["death", "silence"],
)
@pytest.mark.parametrize("begun", [[], [opened("Half")]], ids=["at once", "in the middle"])
async def test_an_engine_that_fails_again_and_again_is_tried_no_more_than_it_may(
    settings: Settings, fault: Any, words: str, begun: list[Any]
) -> None:
    engine = scripted([*begun, fault], [fault])
    found = await made(changed(settings, max_attempts=3), engine)
    assert (found.status, found.output_text) == ("failed", "Half" if begun else "")
    assert found.error
    assert found.error.message.startswith(words)
    assert len(engine.generations) == 3 + len(begun)  # the first one got further


@pytest.mark.parametrize(
    "fault", [DEATH, EndWithoutFinish(), FinishWith(Finish.ABORT)], ids=lambda it: type(it).__name__
)
async def test_an_engine_that_fails_after_each_few_tokens_says_all_and_nothing_twice(
    settings: Settings, fault: Any
) -> None:
    engine = scripted(going_on(SPOKEN, lambda left: [left[:4], fault] if len(left) > 4 else [left]))
    found = await made(changed(settings, max_attempts=2), engine)
    assert (found.status, found.output_text) == ("completed", WORDS)
    assert found.usage
    assert found.usage.output_tokens == len(SPOKEN)
    assert len(engine.generations) == -(-len(SPOKEN) // 4)
    assert len({generation.id for generation in engine.generations}) == len(engine.generations)


async def test_the_limit_of_output_tokens_holds_over_all_attempts(settings: Settings) -> None:
    engine = scripted(going_on(answer(WORDS * 3), lambda left: [left[:5], DEATH]))
    async with serving(settings, engine) as inside, inside.client() as client:
        found = await ended(client, (await submitted(client, max_output_tokens=18)).id)
    assert found.incomplete_details
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert found.usage
    assert found.usage.output_tokens == 18


FORMAT: Any = {
    "type": "json_schema",
    "name": "count",
    "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}


@pytest.mark.parametrize(
    ("rest", "status"), [(": 7}", "completed"), (': "seven"}', "failed"), (" and so on", "failed"), ("", "failed")]
)
async def test_what_is_gone_on_with_amid_a_format_matches_it_or_fails(
    settings: Settings, rest: str, status: str
) -> None:
    whole = [*opened('{"n"'), *encode(rest), RETURN]
    known = len(opened('{"n"'))
    engine = scripted(
        going_on(whole, lambda left: [left] if len(left) <= len(whole) - known else [left[:known], DEATH])
    )
    async with (
        serving(settings, engine) as inside,
        inside.client() as client,
        opened_stream(client, text={"format": FORMAT}) as (id, _),
    ):
        found = await ended(client, id)
        assert check_stream(await streamed(inside, id)) == found.to_dict()
    assert (found.status, found.output[-1].to_dict()["status"]) == (
        status,
        "completed" if status == "completed" else "incomplete",
    )
    tags = [generation.sampling.structural_tag for generation in engine.generations]
    assert all(tags[:-1])
    assert tags[-1] is None


async def test_a_bug_costs_an_attempt_and_never_the_worker(settings: Settings) -> None:
    bug: Any = RuntimeError("a bug")
    engine = scripted(*[[Die(bug)]] * 2, [answer("Hello.")])
    async with serving(changed(settings, lease_seconds=1.0), engine) as inside, inside.client() as client:
        assert (await ended(client, (await submitted(client)).id)).output_text == "Hello."
        assert (await ended(client, (await submitted(client)).id)).output_text == "Hello."


async def test_events_of_a_release_that_is_gone_end_a_response_in_words(settings: Settings) -> None:
    async with serving(changed(settings, embedded_worker=False), scripted([])) as inside, inside.client() as client:
        id, jobs = (await submitted(client, stream=False)).id, Jobs(inside.store)
        (job,) = (await jobs.claim(0, 1)).jobs
        response = decode_response((await retrieved(inside, id)).content)
        strange = [events.ResponseInProgress(response, sequence_number=number) for number in range(2, 62)]
        await jobs.write(job.lease, LogEntry(61, encode_batch(Batch([*strange]))))
        await jobs.hand_back(job.lease, failed=False)
        async with serving(settings, scripted([answer("never")])):
            found = await ended(client, id)
    assert found.error is not None
    assert "another release" in found.error.message


async def test_a_log_that_is_full_ends_its_response_whole(settings: Settings) -> None:
    words = " ".join(str(number**3) for number in range(2000))  # more than may wait to be written
    engine = scripted([[token] for token in answer(words)])
    found = await made(changed(settings, max_event_log_bytes=10_000), engine)
    assert found.error
    assert (found.status, "HARMONIUM_MAX_EVENT_LOG_BYTES" in found.error.message) == ("failed", True)
    assert words.startswith(found.output_text)
    assert len(found.output_text) > 100
