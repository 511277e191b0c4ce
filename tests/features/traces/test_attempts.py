"""Background responses: where one was submitted and each attempt at it, which may be of other processes, are linked."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.process import Settings
from tests.support.chaos.storm import QUICK
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, Process, ServiceProcess, WorkerProcess
from tests.support.tracing.receiver import Receiver
from tests.support.waiting import wait_until

SECONDS = 30.0
TOKENS_PER_SECOND = 20
"""So that there is time to die amid an answer."""

Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path, redis_url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts processes over one store, which are traced; they end with the test."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    started: list[Process] = []
    shared = QUICK | {"redis_url": redis_url, "redis_prefix": tmp_path.name, "traces_url": receiver.url}
    shared |= {"demo_tokens_per_second": TOKENS_PER_SECOND}

    def starter(kind: Callable[..., Any], *options: str) -> Any:
        started.append(kind(tmp_path / f"process-{len(started)}", *options, **shared))
        return started[-1]

    yield starter
    for process in started:
        process.stop()


async def test_an_attempt_is_a_trace_of_its_own_that_is_linked_to_the_submission(
    traced: Settings, receiver: Receiver
) -> None:
    async with serving(traced, scripted([answer("Hello.")])) as inside, inside.client() as client:
        job = await submitted(client)
        await ended(client, job.id)
        (attempt,) = await receiver.until("attempt")
        (submit,) = await receiver.until("submit")
    assert (submit.kind, attempt.kind, attempt.parent) == ("producer", "consumer", "")
    assert attempt.trace != submit.trace
    assert attempt.links == ((submit.trace, submit.id),)
    assert attempt.facts["gen_ai.conversation.id"] == submit.facts["gen_ai.conversation.id"] == job.id
    assert attempt.facts["harmonium.attempt.number"] == 1
    assert attempt.facts["harmonium.attempt.outcome"] == "ended"
    assert [span.name for span in receiver.below(attempt)] == ["claim", f"chat {MODEL}", "store.append"]


@pytest.mark.timeout(120)
def test_the_attempts_of_a_worker_that_was_killed_and_of_the_next_one_are_linked_to_one_submission(
    start: Start, receiver: Receiver
) -> None:
    api, first = start(ServiceProcess, "--no-embedded-worker"), start(WorkerProcess)
    client = api.client()
    job = client.responses.create(model=MODEL, input="Count to 50.", background=True)
    receiver.wait_for("claim")
    wait_until(lambda: "2" in client.responses.retrieve(job.id).output_text, SECONDS, "it says nothing")
    first.kill()
    start(WorkerProcess)
    (attempt,) = receiver.wait_for("attempt")
    (submit,) = receiver.wait_for("submit")
    assert client.responses.retrieve(job.id).output_text.split()[-1] == "50"
    claims = receiver.named("claim")
    assert [span.facts["harmonium.attempt.number"] for span in claims] == [1, 2]
    assert len({span.trace for span in claims}) == 2
    assert {span.links for span in (*claims, attempt)} == {((submit.trace, submit.id),)}
    assert (attempt.trace, attempt.facts["harmonium.attempt.number"]) == (claims[1].trace, 2)
    assert attempt.facts["harmonium.attempt.outcome"] == "ended"


def test_a_worker_that_leaves_sends_its_last_spans(start: Start, receiver: Receiver) -> None:
    api, first = start(ServiceProcess, "--no-embedded-worker"), start(WorkerProcess)
    api.client().responses.create(model=MODEL, input="Count to 10000.", background=True)
    receiver.wait_for("claim")
    first.stop()
    (attempt,) = receiver.wait_for("attempt")
    assert (attempt.failed, attempt.facts["harmonium.attempt.outcome"]) == (False, "handed_back")
