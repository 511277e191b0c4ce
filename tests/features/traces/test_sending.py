"""A receiver can do nothing to the service. Spans are lost where they can't be sent."""

import pytest
from pydantic import SecretStr

from service.features.traces.tracing import CLOSE_SECONDS
from service.process import Settings
from tests.support.ports import free_port
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.tracing.receiver import Receiver
from tests.support.waiting import until

CREATE = "POST /v1/responses"


async def test_headers_and_the_service_s_name_go_with_the_spans(
    traced: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    changes = {"traces_headers": SecretStr("authorization=Basic%20YTpi,x-scope=1")}
    async with serving(traced.model_copy(update=changes), scripted([answer("hi")])) as inside:
        async with inside.client() as client:
            await client.responses.create(model=MODEL, input="hi")
        (request,) = await receiver.until(CREATE)
    assert request.service == "chat"
    assert receiver.headers[0]["authorization"] == "Basic YTpi"
    assert receiver.headers[0]["x-scope"] == "1"


async def test_a_receiver_that_refuses_or_is_away_is_said_once_and_keeps_nobody_waiting(
    traced: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    away = traced.model_copy(update={"traces_url": f"http://127.0.0.1:{free_port()}/v1/traces"})
    async with serving(away, scripted([answer("hi")])) as inside, inside.client() as client:
        for _ in range(5):
            await client.responses.create(model=MODEL, input="secret words")
        await until(
            lambda: [each for each in caplog.records if each.getMessage() == "the collector did not accept spans"]
        )
    (said,) = [each for each in caplog.records if each.getMessage() == "the collector did not accept spans"]
    assert said.__dict__["fields"]["url"] == away.traces_url.removesuffix("/v1/traces")
    assert not [each for each in caplog.records if each.name.startswith("opentelemetry")]


async def test_a_receiver_that_never_answers_holds_no_stop_up(
    traced: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    receiver.gate.clear()
    async with serving(traced, scripted([answer("hi")])) as inside, inside.client() as client:
        for _ in range(3):
            await client.responses.create(model=MODEL, input="hi")
    assert not receiver.spans
    assert CLOSE_SECONDS < 5
