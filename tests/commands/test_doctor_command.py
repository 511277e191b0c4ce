"""`harmonium doctor`: what it prints, with which status it ends, and how it finds an embedded server."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.commands.command_line import app
from service.commands.doctor import expected_of
from service.settings.settings import Settings, load_settings, variable
from store.doctor.doctor import Expected
from store.embedded import EmbeddedServer
from store.redis.address import Kind

SECRET = "sk-very-secret"
NOWHERE = f"redis://me:{SECRET}@127.0.0.1:1"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARMONIUM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HARMONIUM_MAX_BYTES", str(1 << 20))
    monkeypatch.setenv("HARMONIUM_MAX_CHAIN_BYTES", str(1 << 18))


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "200"})


def test_an_embedded_server_that_does_not_run_is_started_for_the_question(tmp_path: Path) -> None:
    result = doctor()
    assert result.exit_code == 0, result.output
    assert f"embedded in {tmp_path}/data" in result.output
    assert "append-only file" in result.output
    assert "0 unsafe" in result.output
    with EmbeddedServer(tmp_path / "data"):  # it is gone again
        pass


def test_an_embedded_server_that_runs_is_asked_where_it_is(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data"):
        result = doctor("--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["safe"]


def test_what_is_unsafe_ends_it_with_status_1(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data") as server:
        result = doctor("--redis-url", f"{server.url}?db=0")
        assert (result.exit_code, "0 unsafe" in result.output) == (0, True), result.output
    result = doctor("--redis-url", NOWHERE)
    assert result.exit_code == 1
    assert "1 unsafe" in result.output


def test_json_is_one_object_with_every_finding() -> None:
    result = doctor("--redis-url", NOWHERE, "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report.keys() == {"safe", "redis", "findings"}
    assert not report["safe"]
    (finding,) = report["findings"]
    assert finding.keys() == {"what", "level", "now", "why", "remedy", "node"}
    assert (finding["what"], finding["level"]) == ("reachable", "unsafe")


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_no_password_is_shown(arguments: tuple[str, ...]) -> None:
    output = doctor("--redis-url", NOWHERE, *arguments).output
    assert SECRET not in output
    assert "redis://me:****@127.0.0.1:1" in output


def test_settings_that_can_not_be_used_end_it_with_one_line() -> None:
    result = doctor("--redis-url", "http://h")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    result = doctor("--redis-url", "redis://h?foo=bar")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("url", "kind", "local", "password"),
    [
        ("redis://127.0.0.1", Kind.SINGLE, True, False),
        ("redis://localhost:1/2", Kind.SINGLE, True, False),
        ("unix:///run/x.sock", Kind.SINGLE, True, False),
        ("redis://10.0.0.5", Kind.SINGLE, False, False),
        ("rediss://me:pw@redis.example", Kind.SINGLE, False, True),
        ("redis://redis.example?password=pw", Kind.SINGLE, False, True),
        ("redis+cluster://127.0.0.1,10.0.0.5", Kind.CLUSTER, False, False),
        ("redis+sentinel://me:pw@[::1]:1,127.0.0.1/s", Kind.SENTINEL, True, True),
    ],
)
def test_the_url_says_who_can_reach_the_server_and_how(url: str, kind: Kind, local: bool, password: bool) -> None:
    settings = load_settings(redis_url=url, shards=3)
    assert expected_of(settings) == Expected(
        kind, 3, 1 << 20, log_bytes=settings.max_log_bytes, local=local, password=password
    )
