"""Where nothing is traced, what traces isn't even imported, and all that is asked of a span does nothing."""

import os
import subprocess
import sys

import pytest

from service.features.traces.settings import from_otel
from service.process import Settings
from tests.support import ROOT
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL

IMPORTED = """
import asyncio, sys, tempfile
from pathlib import Path
from service.process import load_settings
from store.embedded import EmbeddedServer
from tests.support.service.background import ended, submitted
from tests.support.service.inside import serving
from tests.support.service.process import MODEL

async def main():
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        async with serving(load_settings(redis_url=server.url)) as inside, inside.client() as client:
            await client.responses.create(model=MODEL, input="hi")
            assert (await ended(client, (await submitted(client)).id)).status == "completed"
    print([name for name in sys.modules if name.startswith(TRACERS)])

asyncio.run(main())
"""
TRACERS = (
    "service.features.traces.tracing",
    "opentelemetry.sdk.trace",
    "opentelemetry.exporter",
    "opentelemetry.proto",
)
"""What traces. The client of Redis imports what OpenTelemetry has for metrics by itself, where it is installed."""
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def test_what_traces_is_never_imported_where_nothing_is_traced() -> None:
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    ran = subprocess.run(
        [sys.executable, "-c", f"TRACERS = {TRACERS}\n{IMPORTED}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


async def test_a_clients_trace_goes_on_to_the_engine_as_it_came(settings: Settings) -> None:
    engine, parent = scripted([answer("Hello.")]), f"00-{'a' * 32}-{'b' * 16}-01"
    async with serving(settings, engine) as inside, inside.client() as client:
        await client.responses.create(model=MODEL, input="hi", extra_headers={"traceparent": parent})
    assert engine.generations[0].trace == (("traceparent", parent),)


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        (ENDPOINT, "http://collector:4318/v1/traces"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://other/x"}, "http://other/x"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "True"}, None),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None),
    ],
)
def test_opentelemetrys_own_variables_stand_in_for_the_url(variables: dict[str, str], url: str | None) -> None:
    assert from_otel(variables).get("HARMONIUM_TRACES_URL") == url


def test_opentelemetrys_own_variables_stand_in_for_other_settings() -> None:
    given = ENDPOINT | {"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert from_otel(given) == {
        "HARMONIUM_TRACES_URL": "http://collector:4318/v1/traces",
        "HARMONIUM_TRACES_HEADERS": "a=b",
        "HARMONIUM_TRACES_RATIO": "0.25",
    }
    assert from_otel(given | {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "c=d"})["HARMONIUM_TRACES_HEADERS"] == "c=d"
