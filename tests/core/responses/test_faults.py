"""What a caller sees when the engine or the store fails, and what is kept of it."""

import time
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any

import httpx
import openai
import pytest

from service.engine.port import EngineError, EngineUnavailable
from service.harmony.tokens import RETURN, encode
from service.process import Settings
from service.responses.output.emitter import MessageEmitter
from service.responses.output.machine import Machine
from tests.core.web.test_health import stopped
from tests.support.engine.scripted import Die, EndWithoutFinish, Stall
from tests.support.service.inside import Inside, opened, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.streams import Event, parsed
from tests.support.store.counted import usage
from tests.support.waiting import wait_until

FAULTS: dict[str, Any] = {"death": Die(EngineError("out of memory")), "silence": EndWithoutFinish()}


async def post(inside: Inside, **body: object) -> httpx.Response:
    """The answer to a create request."""
    async with inside.http() as http:
        return await http.post("/v1/responses", json={"model": MODEL, "input": "hi", **body})


async def streamed(inside: Inside) -> list[Event]:
    return parsed((await post(inside, stream=True)).text)


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_engine_that_fails_before_its_first_token_is_a_plain_error(settings: Settings, fault: str) -> None:
    async with serving(settings, scripted([FAULTS[fault]])) as inside:
        answer = await post(inside)
        assert answer.status_code == 500
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_error")
        assert "engine" in error["message"]
        assert (await usage(inside.store)).responses == 0


async def test_an_engine_that_is_away_is_worth_another_try(settings: Settings) -> None:
    async with serving(settings, scripted([Die(EngineUnavailable("restarting"))])) as inside:
        answer = await post(inside)
    assert answer.status_code == 503
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_engine_that_fails_in_the_middle_leaves_what_was_said(settings: Settings, fault: str) -> None:
    async with serving(settings, scripted([opened("Half an answer"), FAULTS[fault]])) as inside:
        events = await streamed(inside)
        plain = (await post(inside)).json()
        failed = events[-1]["response"]
        for response in (failed, plain):
            assert response["status"] == "failed"
            assert response["error"]["code"] == "server_error"
            assert response["output"][0]["content"][0]["text"] == "Half an answer"
            assert response["output"][0]["status"] == "incomplete"
        async with inside.http() as http:
            assert (await http.get(f"/v1/responses/{failed['id']}")).json() == failed


async def test_a_failed_response_can_not_be_continued(settings: Settings) -> None:
    async with serving(settings, scripted([opened("Half"), FAULTS["death"]])) as inside, inside.client() as client:
        failed = await client.responses.create(model=MODEL, input="hi")
        with pytest.raises(openai.BadRequestError, match="failed") as refusal:
            await client.responses.create(model=MODEL, input="Go on.", previous_response_id=failed.id)
    assert refusal.value.code == "previous_response_not_continuable"


async def test_a_response_that_takes_too_long_fails_and_says_so(settings: Settings) -> None:
    hurried = settings.model_copy(update={"request_seconds": 1.0})
    async with serving(hurried, scripted([opened("Slow"), Stall()])) as inside, inside.client() as client:
        events = await streamed(inside)
        plain = (await post(inside)).json()
        assert (await client.responses.retrieve(plain["id"])).status == "failed"
    for response in (events[-1]["response"], plain):
        assert response["status"] == "failed"
        assert "longer than 1 s" in response["error"]["message"]
        assert response["output"][0]["content"][0]["text"] == "Slow"


async def test_silence_that_takes_too_long_is_a_plain_error(settings: Settings) -> None:
    hurried = settings.model_copy(update={"request_seconds": 1.0})
    engine = scripted([Stall()])
    async with serving(hurried, engine) as inside:
        answer = await post(inside)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
        assert "longer than 1 s" in answer.json()["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"
        assert (await usage(inside.store)).responses == 0
        events = await streamed(inside)
    assert [event["type"] for event in events[2:]] == ["error", "response.failed"]
    assert len(engine.aborted) == 2


BUG: Any = RuntimeError("a bug")


def buggy(monkeypatch: pytest.MonkeyPatch, broken: type, name: str, behind: int, until: float = inf) -> None:
    """A method raises behind so many calls, and no more `until` a later one."""
    calls, work = count(), getattr(broken, name)

    def raises(*args: Any, **more: Any) -> object:
        if not behind <= next(calls) < until:
            return work(*args, **more)
        raise BUG

    monkeypatch.setattr(broken, name, raises)


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[object]:
    """The bugs in the log."""
    return [record.exc_info[1] for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("broken", "name", "behind"), [(Machine, "feed", 2), (Machine, "_take", 4), (MessageEmitter, "text", 2)]
)
async def test_a_bug_ends_a_stream_as_a_failure_with_what_was_said_and_is_logged_once(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: type,
    name: str,
    behind: int,
) -> None:
    async with serving(settings, scripted([opened("Half"), encode(" an"), [*encode(" answer"), RETURN]])) as inside:
        buggy(monkeypatch, broken, name, behind)
        events = await streamed(inside)
        failed = events[-1]["response"]
        async with inside.http() as http:
            assert (await http.get(f"/v1/responses/{failed['id']}")).json() == failed
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert failed["error"] == {"code": "server_error", "message": events[-2]["message"]}
    assert failed["error"]["message"].startswith("The service failed")
    (said,) = failed["output"]
    assert (said["status"], said["content"][0]["text"]) == ("incomplete", "Half an")
    assert tracebacks(caplog) == [BUG]


async def test_a_bug_costs_a_background_response_its_attempts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Machine, "feed", lambda *_: 1 // 0)
    once = settings.model_copy(update={"max_attempts": 1})
    async with serving(once, scripted([opened("Hello."), [RETURN]])) as inside:
        events = parsed((await post(inside, background=True, stream=True)).text)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-1]["response"]["error"]["message"].startswith("The service failed")
    assert len(tracebacks(caplog)) == 1


def test_a_store_that_hangs_is_a_503_that_says_when_to_come_back(start: Callable[..., ServiceProcess]) -> None:
    service = start(store_timeout_seconds=1.0)
    id, deleted = (service.client().responses.create(model=MODEL, input="hi").id for _ in range(2))
    body = {"model": MODEL, "input": "hi", "previous_response_id": id}
    with stopped(service.redis_pid()):
        for method, path, content in (
            ("POST", "", body),
            ("POST", "", {**body, "background": True, "stream": True}),
            ("POST", f"/{id}/cancel", None),
            ("GET", f"/{id}", None),
            ("GET", f"/{id}?stream=true", None),
            ("DELETE", f"/{deleted}", None),  # which may be carried out later
        ):
            begun = time.monotonic()
            answer = service.http().request(method, f"/v1/responses{path}", json=content)
            assert time.monotonic() - begun < 10.0  # ten times the bound; what waits for a store goes on for longer
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "service_unavailable"
            assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("1", "true")
    wait_until(lambda: service.http().post("/v1/responses", json=body).status_code == 200)
