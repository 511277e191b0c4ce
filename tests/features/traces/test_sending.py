"""A receiver can do nothing to the service. Spans are lost where they can't be sent."""

import logging
import os
from typing import Any

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
    traced: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        monkeypatch.setenv(name, "x-key=for-another")
    caplog.set_level(logging.DEBUG)
    changes: dict[str, Any] = {"traces_headers": SecretStr("authorization=Basic%20YTpi,x-scope=1")}
    changes["traces_url"] = f"{traced.traces_url}?key=s3cret"
    async with serving(traced.model_copy(update=changes), scripted([answer("hi")])) as inside:
        async with inside.client() as client:
            await client.responses.create(model=MODEL, input="hi")
        (request,) = await receiver.until(CREATE)
    assert request.service == "chat"
    assert receiver.headers[0]["authorization"] == "Basic YTpi"
    assert receiver.headers[0]["x-scope"] == "1"
    assert "x-key" not in receiver.headers[0]  # the settings alone say whose headers go to this URL
    assert os.environ["OTEL_EXPORTER_OTLP_HEADERS"] == "x-key=for-another"
    assert "s3cret" not in caplog.text


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


async def test_nothing_is_sent_where_opentelemetry_is_turned_off(
    traced: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with serving(traced, scripted([answer("hi")])) as inside, inside.client() as client:
        assert (await client.responses.create(model=MODEL, input="hi")).status == "completed"
    assert not receiver.raw
