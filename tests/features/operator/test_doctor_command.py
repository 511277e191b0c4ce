"""`harmonium doctor`: what it prints, with which status it ends, and how it finds an embedded server."""

import asyncio
import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner, Result

from service.commands.arguments import EXIT_USAGE
from service.commands.command_line import app
from service.features.archive.opening import lists_alone
from service.features.archive.settings import ArchiveSettings
from service.features.client.errors import RefusedByService
from service.features.client.profile import Profile
from service.features.client.service import Json, RemoteService
from service.features.operator import gpu
from service.features.operator.at_start import expected_of
from service.features.operator.doctor import diagnose, one_response
from service.process import Settings, load_settings
from store.embedded import EmbeddedServer
from store.redis.address import AddressKind
from tests.support.engine.connected import scripted
from tests.support.engine.standin import standing_in
from tests.support.service.process import ServiceProcess
from tests.support.store.servers import server

SECRET = "sk-very-secret"
NOWHERE = f"redis://me:{SECRET}@127.0.0.1:1"


pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONIUM_PORT", "0")  # any that is free
    monkeypatch.setenv("HARMONIUM_MAX_BYTES", str(1 << 20))
    monkeypatch.setenv("HARMONIUM_MAX_CHAIN_BYTES", str(1 << 18))


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "200"})


def finding(what: str, *arguments: str) -> dict[str, str]:
    """What `harmonium doctor --json` finds under this name."""
    (found,) = [each for each in json.loads(doctor("--json", *arguments).output)["findings"] if each["what"] == what]
    return found


def test_an_embedded_server_that_does_not_run_is_started_for_the_question(tmp_path: Path) -> None:
    result = doctor()
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"embedded in {tmp_path}/data\n")
    with EmbeddedServer(tmp_path / "data"):  # it is gone again
        pass


def test_json_is_one_object_with_every_finding() -> None:
    result = doctor("--redis-url", NOWHERE, "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report.keys() == {"safe", "redis", "findings"}
    assert (SECRET in result.output, "redis://me:****@127.0.0.1:1" in result.output) == (False, True)
    assert all(each.keys() == {"what", "level", "now", "why", "remedy", "node"} for each in report["findings"])
    names = ["reachable", "archive", "API keys", "port", "engine", "sandbox", "webhooks"]
    assert [each["what"] for each in report["findings"]] == names
    assert [each["level"] for each in report["findings"][:3]] == ["unsafe", "warn", "ok"]


def test_it_ends_with_the_page_of_symptoms_whatever_it_finds() -> None:
    for options in ((), ("--redis-url", NOWHERE)):
        assert "docs/troubleshooting.md lists symptoms and remedies" in " ".join(doctor(*options).output.split())[-130:]


def test_a_store_without_an_archive_is_warned_of_as_what_leaves_memory_is_gone_for_good() -> None:
    assert finding("archive")["level"] == "ok"  # that of an embedded server
    without = finding("archive", "--redis-url", NOWHERE)
    assert (without["level"], "are deleted" in without["now"]) == ("warn", True)
    assert "HARMONIUM_ARCHIVE_URL" in without["remedy"]


def test_a_wrong_password_is_no_server_to_be_started(tmp_path: Path) -> None:
    with server(tmp_path, "--requirepass", SECRET) as redis:
        for user in ("", "me:wrong@"):
            found = finding("reachable", "--redis-url", f"redis://{user}{redis.address}")
            assert (found["level"], "the user and the password" in found["remedy"]) == ("unsafe", True)


LONG = f"other:{'x' * 32}"


@pytest.mark.parametrize(
    ("keys", "level", "now"),
    [(f"acme:k2,{LONG}", "warn", "fewer than 20 characters, of acme"), (LONG, "ok", "1, of 1 project")],
)
def test_short_keys_are_warned_of_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, keys: str, level: str, now: str
) -> None:
    monkeypatch.setenv("HARMONIUM_API_KEYS", keys)
    found = finding("API keys")
    assert (found["level"], found["now"]) == (level, now)
    assert "k2" not in doctor("--all").output


@pytest.mark.parametrize("name", ["HARMONIUM_ADMIN_KEY", "HARMONIUM_PROJECTS"])
def test_with_projects_not_only_this_machine_can_connect(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "an-administrators-key" if name == "HARMONIUM_ADMIN_KEY" else "true")
    assert finding("API keys")["now"] == "those of projects in the store"
    monkeypatch.setenv("HARMONIUM_API_KEYS", LONG)
    assert finding("API keys")["now"] == "1, of 1 project, and those of projects in the store"


def test_a_port_is_free_or_harmoniums_or_somebody_elses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = finding("port", "--port", port)
    assert (found["level"], found["now"]) == ("unsafe", f"port {port} on 127.0.0.1 is taken by another program")
    assert finding("port", "--port", port)["now"] == f"http://127.0.0.1:{port} is free"


def test_a_data_folder_that_can_not_be_used_is_found_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").touch()
    found = finding("data folder", "--data-dir", str(tmp_path / "mine"))
    assert found["level"] == "unsafe"
    assert "holds other files (letter)" in found["now"]
    assert list((tmp_path / "mine").iterdir()) == [tmp_path / "mine/letter"]
    assert finding("data folder")["now"] == str(tmp_path / "data")


async def test_the_engine_is_asked_and_each_trouble_has_its_remedy() -> None:
    async def engine(**settings: object) -> tuple[str, str, str]:
        chosen = load_settings(redis_url=NOWHERE, engine="vllm", **settings)
        found = {each.what: each for each in await asyncio.to_thread(diagnose, chosen)}["engine"]
        return found.level, found.now, found.remedy

    async with standing_in(scripted()) as vllm:
        name = urlsplit(vllm.url).netloc
        assert await engine(engine_url=vllm.url) == ("ok", f"{vllm.model} on {name}", "")
        vllm.version = "0.32.0"
        level, now, _ = await engine(engine_url=f"{vllm.url},http://127.0.0.1:1")
        assert (level, now) == ("warn", "1 of 2 servers down: 127.0.0.1:1")
        vllm.version = "0.30.1"
        level, now, remedy = await engine(engine_url=vllm.url)
        assert (level, "use 0.32 or newer" in now) == ("warn", True)
        assert "docs/deploy.md#versions-of-vllm" in remedy
        level, _, remedy = await engine(engine_url=vllm.url, model="gpt-4o")
        assert (level, "HARMONIUM_MODEL" in remedy) == ("unsafe", True)
        vllm.api_key = SECRET
        level, _, remedy = await engine(engine_url=vllm.url)
        assert (level, remedy) == ("unsafe", "set HARMONIUM_ENGINE_API_KEY to the key of the server")


NO_GPU = "no NVIDIA GPU that can be used here: "
H200 = "NVIDIA H200, {driver}, 9.0, 143771, {free}"
GPUS: dict[str, tuple[dict[str, str], int, dict[str, tuple[str, str]]]] = {
    "all is there": (
        {"nvidia-smi": H200.format(driver="580.65.06", free=143000), "docker": "", "nvidia-ctk": ""}, 90,
        {"GPU driver": ("ok", "580.65.06, for NVIDIA H200"), "GPU memory": ("ok", "140 of 140 GiB free"),
         "container toolkit": ("ok", "/nvidia-ctk"),
         "disk for a model": ("ok", "90 GB free at /var/lib/docker: enough for both")},
    ),
    "an older driver, others at work, a full disk": (
        {"nvidia-smi": H200.format(driver="535.261.03", free=90000), "docker": ""}, 20,
        {"GPU driver": ("warn", "535.261.03, for NVIDIA H200"), "GPU memory": ("warn", "88 of 140 GiB free"),
         "container toolkit": ("warn", "not installed"), "disk for a model": ("warn", "enough for neither")},
    ),
    "no program": ({}, 90, {"GPU": ("unsafe", f"{NO_GPU}there is no nvidia-smi")}),
}  # fmt: skip
"""The programs on PATH with their output, the free GB of the disk, and the level and some words of each finding."""


@pytest.mark.parametrize("machine", GPUS)
def test_a_machine_for_a_gpu_is_judged_by_its_driver_memory_toolkit_and_disk(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, free, outcome = GPUS[machine]
    (tmp_path / "bin").mkdir()
    for name, said in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(gpu, "free_bytes", lambda _: free * 10**9)
    monkeypatch.setattr(gpu, "ANSWER_SECONDS", 60)
    found = {each.what: each for each in gpu.examine_gpu()}
    assert {what: (each.level, outcome[what][1] in each.now) for what, each in found.items()} == {
        what: (level, True) for what, (level, _) in outcome.items()
    }
    assert all(bool(each.remedy) == (each.level != "ok") for each in found.values())


def test_the_url_says_who_can_reach_the_server_and_how() -> None:
    for url, kind, local, password in (
        ("redis://localhost:1/2", AddressKind.SINGLE, True, False),
        ("redis+cluster://127.0.0.1,10.0.0.5", AddressKind.CLUSTER, False, False),
        ("redis+sentinel://me:pw@[::1]:1,127.0.0.1/s", AddressKind.SENTINEL, True, True),
    ):
        found = expected_of(load_settings(redis_url=url, shards=3))
        assert (found.kind, found.shards, found.local, found.password) == (kind, 3, local, password)


def test_a_receiver_of_webhooks_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        url = f"http://127.0.0.1:{receiver.getsockname()[1]}/{SECRET}"
        monkeypatch.setenv("HARMONIUM_WEBHOOK_SECRET", "whsec_" + "QUJD" * 10)
        for given, level in ((url, "warn"), (f"private+{url}", "ok")):
            monkeypatch.setenv("HARMONIUM_WEBHOOK_URL", given)
            assert finding("webhooks")["level"] == level


def test_a_running_service_has_the_port_and_is_asked_for_one_response_which_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_CLIENT_KEY", SECRET)
    monkeypatch.setattr("service.features.operator.doctor.ANSWER_SECONDS", 60.0)
    running = ServiceProcess(tmp_path / "running", api_keys=f"acme:{SECRET}")
    try:
        found = finding("port", "--port", str(running.port))
        assert (found["level"], found["now"]) == ("ok", f"harmonium answers at {running.url}")
        found = finding("one response", "--url", running.url)
        assert found["level"] == "ok"
        done = [each.split()[0] for each in found["now"].split(", ")]
        assert done == ["made", "retrieved", "continued", "deleted"]
        assert running.http(SECRET).get("/console/api/trees").json()["data"] == []
        monkeypatch.setenv("HARMONIUM_CLIENT_KEY", "sk-another")
        result = doctor("--url", running.url)
        assert result.exit_code == 1
        assert "HTTP 401" in result.output
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("ACME_KEY", SECRET)
        (tmp_path / "harmonium").mkdir()
        profile = f'[profiles.acme]\nurl = "{running.url}"\nkey_env = "ACME_KEY"\n'
        (tmp_path / "harmonium" / "config.toml").write_text(profile)
        for options in (("--url", running.url, "--key-env", "ACME_KEY"), ("--profile", "acme")):
            assert finding("one response", *options)["level"] == "ok"
    finally:
        running.stop()
    gone = doctor("--url", running.url)
    assert (gone.exit_code, "not made: can't reach" in gone.output, SECRET in gone.output) == (1, True, False)


def test_a_profile_that_is_not_there_is_one_line_and_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = doctor("--profile", "nobodys")
    assert (result.exit_code, "there is no profile 'nobodys'" in result.stderr) == (EXIT_USAGE, True)


class Forgetful(RemoteService):
    """Fails at some step, and notes what it was asked for."""

    def __init__(self, fails: str) -> None:
        super().__init__(Profile(NOWHERE, None, "some-model"))
        self.asked: list[str] = []
        self._fails = fails

    def call(self, method: str, path: str, body: Json | None = None, /, **query: str | int) -> Json:
        self.asked.append(f"on {method}" if (body or {}).get("previous_response_id") else method)
        if self.asked[-1] == self._fails:
            raise RefusedByService(500, "no")
        return {"id": "resp_1", "status": "completed"}


@pytest.mark.parametrize(
    ("fails", "asked", "failed"),
    [
        ("POST", ["POST"], "made"),
        ("GET", ["POST", "GET", "DELETE"], "retrieved"),
        ("on POST", ["POST", "GET", "on POST", "DELETE"], "continued"),
        ("DELETE", ["POST", "GET", "on POST", "DELETE"], "deleted"),
    ],
)
def test_whatever_step_fails_what_was_made_is_deleted(fails: str, asked: list[str], failed: str) -> None:
    service = Forgetful(fails)
    level, now, _ = one_response(service)
    assert service.asked == asked
    assert (level, now.partition("; ")[0], now.count(" in ")) == (
        "unsafe",
        f"not {failed}: no (HTTP 500)",
        len(asked) - 1,
    )


@pytest.mark.parametrize(
    ("redis_url", "archive_url", "catalogue_url", "alone"),
    [
        ("redis://r", "s3://bucket", "", True),
        ("redis://r", "s3://bucket", "sqlite", False),
        ("redis://r", "s3://bucket", "postgresql://p/d", False),
        ("redis://r", "postgresql://p/d", "", False),
        ("", "s3://bucket", "", False),
        ("redis://r", "none", "", False),
    ],
)
def test_machines_with_a_bucket_have_a_list_each_unless_the_settings_name_one(
    redis_url: str, archive_url: str, catalogue_url: str, alone: bool
) -> None:
    told = {"redis_url": redis_url, "archive_url": archive_url, "catalogue_url": catalogue_url}
    assert lists_alone(ArchiveSettings.of(Settings.model_validate(told))) is alone
