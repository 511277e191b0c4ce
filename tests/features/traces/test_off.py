"""Where nothing is traced, what traces isn't even imported, and all that is asked of a span does nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.util.re import parse_env_headers

from service.features.traces.settings import TraceSettings
from service.process import Settings, load_settings
from service.settings.sources import SettingsError
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
HEADERS = {"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
OURS = "http://phoenix:6006/v1/traces"

Read = Callable[..., TraceSettings]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Read the settings with these variables of the environment, and with options."""

    def read(variables: dict[str, str], **options: str) -> TraceSettings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return TraceSettings.of(load_settings(**options))

    return read


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
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ""),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "True"}, ""),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, ""),
        (ENDPOINT | {"OTEL_TRACES_SAMPLER": "always_off"}, ""),
        (
            ENDPOINT | {"OTEL_TRACES_SAMPLER": "always_off", "HARMONIUM_TRACES_RATIO": "1"},
            "http://collector:4318/v1/traces",
        ),
        (ENDPOINT | {"HARMONIUM_TRACES_URL": OURS}, OURS),
        (ENDPOINT | {"HARMONIUM_TRACES_URL": ""}, ""),
        (ENDPOINT | {"HARMONIUM_TRACES_URL": OURS, "OTEL_TRACES_EXPORTER": "none"}, OURS),
    ],
)
def test_opentelemetrys_own_variables_stand_in_for_the_url(read: Read, variables: dict[str, str], url: str) -> None:
    assert read(variables).traces_url == url


@pytest.mark.parametrize(
    ("variables", "headers"),
    [
        (ENDPOINT | HEADERS, "a=b"),
        (ENDPOINT | HEADERS | {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "c=d"}, "c=d"),
        (ENDPOINT | HEADERS | {"HARMONIUM_TRACES_HEADERS": "e=f"}, "e=f"),
        (ENDPOINT | HEADERS | {"HARMONIUM_TRACES_URL": OURS}, ""),
        (ENDPOINT | HEADERS | {"HARMONIUM_TRACES_URL": OURS, "HARMONIUM_TRACES_HEADERS": "e=f"}, "e=f"),
        (HEADERS | {"HARMONIUM_TRACES_URL": OURS}, ""),
    ],
)
def test_opentelemetrys_headers_go_to_opentelemetrys_url_alone(
    read: Read, variables: dict[str, str], headers: str
) -> None:
    assert read(variables).traces_headers.get_secret_value() == headers


def test_a_url_of_ours_counts_wherever_it_was_given(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read(ENDPOINT | HEADERS, traces_url=OURS)
    assert (settings.traces_url, settings.traces_headers.get_secret_value()) == (OURS, "")
    (tmp_path / ".env").write_text(f"HARMONIUM_TRACES_URL={OURS}\n")
    monkeypatch.chdir(tmp_path)
    settings = read(ENDPOINT | HEADERS)
    assert (settings.traces_url, settings.traces_headers.get_secret_value()) == (OURS, "")


def test_headers_in_a_file_go_before_opentelemetrys(read: Read, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("e=f")
    settings = read(ENDPOINT | HEADERS | {"HARMONIUM_TRACES_HEADERS_FILE": str(tmp_path / "headers")})
    assert settings.traces_headers.get_secret_value() == "e=f"


@pytest.mark.parametrize("name", ["traces_url", "webhook_url"])
@pytest.mark.parametrize("rest", ["collector:99999", "collector:http", "u:sk-1/more@collector", "u:sk-1[@collector"])
def test_a_url_whose_port_is_none_is_refused_without_a_part_of_a_password(read: Read, name: str, rest: str) -> None:
    with pytest.raises(SettingsError, match="should be a URL whose port is a number up to 65535") as caught:
        read({}, **{name: f"http://{rest}"})
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize("name", ["HARMONIUM_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"])
@pytest.mark.parametrize("text", ["authorization: sk-1", "a=b, sk-1", "=sk-1", 'a="sk-1"', "a=%0D%0Ask-1", "a=b;sk-1"])
def test_headers_that_the_sdk_would_log_whole_are_refused_and_not_shown(read: Read, name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}: entry [12] is no header; write name=value") as caught:
        read(ENDPOINT | {name: text})
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize("text", ["authorization=Basic sk-1==", "a=b%20c , x-d!=e=f,", "a="])
def test_headers_that_the_sdk_reads_are_taken(read: Read, text: str, caplog: pytest.LogCaptureFixture) -> None:
    headers = read(ENDPOINT | {"HARMONIUM_TRACES_HEADERS": text}).traces_headers.get_secret_value()
    assert parse_env_headers(headers, liberal=True)
    assert not caplog.records


@pytest.mark.parametrize("url", [ENDPOINT, {"HARMONIUM_TRACES_URL": OURS}])
@pytest.mark.parametrize(
    ("variables", "ratio"),
    [
        ({}, 1),
        ({"OTEL_TRACES_SAMPLER_ARG": "0.25"}, 0.25),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, 0.25),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, 0.25),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, 1),
        ({"OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, 1),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, 1),
        ({"OTEL_TRACES_SAMPLER": "Parentbased_Always_Off"}, 0),
        ({"OTEL_TRACES_SAMPLER": "xray", "HARMONIUM_TRACES_RATIO": "0.5"}, 0.5),
    ],
)
def test_opentelemetrys_sampler_decides_about_the_share_whosever_the_url_is(
    read: Read, url: dict[str, str], variables: dict[str, str], ratio: float
) -> None:
    assert read(url | variables).traces_ratio == ratio


def test_always_off_samples_nothing_for_a_url_of_ours(read: Read) -> None:
    assert read({"HARMONIUM_TRACES_URL": OURS, "OTEL_TRACES_SAMPLER": "always_off"}).traces_ratio == 0


def test_a_sampler_that_there_is_not_here_is_refused_where_there_are_traces(read: Read) -> None:
    assert read({"OTEL_TRACES_SAMPLER": "xray"}).traces_ratio == 1
    with pytest.raises(SettingsError, match=r"^OTEL_TRACES_SAMPLER=xray: should be always_on, always_off or trace"):
        read(ENDPOINT)


def test_a_share_that_is_none_is_refused_by_the_name_by_which_it_was_given(read: Read) -> None:
    with pytest.raises(SettingsError, match=r"^OTEL_TRACES_SAMPLER_ARG=2: should be a number, 0 to 1"):
        read(ENDPOINT | {"OTEL_TRACES_SAMPLER_ARG": "2"})
