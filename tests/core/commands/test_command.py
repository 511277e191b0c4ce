"""The command: what it prints, how it refuses, and how a service starts, shares its port, and stops."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.commands.command_line import app
from service.process import load_settings
from service.settings.sources import variable
from tests.support import ROOT
from tests.support.ports import free_port
from tests.support.service.process import runs
from tests.support.service.standin import STUCK
from tests.support.waiting import wait_until

DEADLINE_SECONDS = 60
SERVE = """
import os
import sys
from service import process
from tests.support.service.alone import features
process.features = features
from service.commands import serve, signals
from service.process import load_settings
from tests.support.service import standin

signals.STALL_SECONDS = float(os.environ.get("STALL_SECONDS", 15))

if __name__ == "__main__":
    try:
        serve.run(load_settings(), getattr(standin, sys.argv[1]))
    except serve.StartError as error:
        sys.exit(str(error))
"""

pytestmark = pytest.mark.usefixtures("own_folder")


class Service:
    """A service in a process of its own, with the stand-in as its application."""

    def __init__(self, folder: Path, create_app: str, **settings: object) -> None:
        script = folder / "service_under_test.py"
        script.write_text(SERVE)
        self.port = free_port()
        wanted = {variable(name): str(value) for name, value in {"port": self.port, **settings}.items()}
        self.process = subprocess.Popen(
            [sys.executable, str(script), create_app],
            env={**os.environ, **wanted, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, path: str) -> str:
        """The body at `path`; waits until the service is there."""
        return wait_until(lambda: self.open(path).read().decode(), DEADLINE_SECONDS, passing=ConnectionError)

    def open(self, path: str) -> http.client.HTTPResponse:
        """The response at `path`, unread. Raises ConnectionError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse()

    def refuses(self) -> bool:
        """Whether a new connection is refused."""
        try:
            self.open("/pid").read()
        except ConnectionError:
            return True
        return False

    def end(self) -> tuple[int, str]:
        """Its exit status and what it logged, once it has ended."""
        _, logged = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, logged


@contextmanager
def serving(folder: Path, create_app: str = "create_app", **settings: object) -> Generator[Service]:
    """A service that is certainly gone afterwards."""
    service = Service(folder, create_app, **settings)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
        service.process.wait()
        if service.process.stderr is not None:
            service.process.stderr.close()


def test_an_address_of_a_server_is_not_passed_over_where_another_engine_is_set() -> None:
    result = CliRunner().invoke(app, ["serve", "--engine", "demo", "--engine-url", "http://gpu:8000"])
    assert (result.exit_code, result.stderr[:39]) == (2, "harmonium: --engine-url is for --engine")


def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed() -> None:
    result = CliRunner().invoke(app, ["serve", "--port=eighty"])
    told = "harmonium: --port eighty: should be a whole number, 0 to 65,535\n"
    assert (result.exit_code, result.stderr) == (2, told)


def test_the_settings_it_prints_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONIUM_STORE", "false")
    monkeypatch.setenv("HARMONIUM_LOCAL_MODEL", r"""It's "me" # \n not a comment""")
    before = load_settings()
    (tmp_path / ".env").write_text(CliRunner().invoke(app, ["settings"]).output)
    monkeypatch.delenv("HARMONIUM_STORE")
    monkeypatch.delenv("HARMONIUM_LOCAL_MODEL")
    assert load_settings() == before


def test_the_settings_it_prints_hold_no_secret_and_no_mask_is_read_back_as_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_API_KEYS", "acme:sk-secret")
    printed, as_json = (CliRunner().invoke(app, ["settings", *more]).output for more in ([], ["--json"]))
    assert "sk-secret" not in printed + as_json
    assert json.loads(as_json)["api_keys"] == "acme:****"
    (tmp_path / ".env").write_text(printed)
    monkeypatch.delenv("HARMONIUM_API_KEYS")
    assert load_settings().api_keys == ()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_refuses_the_new_finishes_the_old_and_leaves_nothing_behind(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, workers=workers) as service:
        redis_socket = Path(service.get("/redis").removeprefix("unix://"))
        assert redis_socket.exists()
        stream = service.open("/slow")
        assert stream.read(4) == b"tick"
        service.process.send_signal(signal.SIGTERM)
        wait_until(service.refuses, DEADLINE_SECONDS)
        assert stream.read().endswith(b"done")
        status, logged = service.end()
    assert status == 0, logged
    assert not redis_socket.exists()
    assert "no API keys" in logged
    assert "Traceback" not in logged


@pytest.mark.parametrize("workers", [1, 2])
def test_an_application_that_can_not_start_ends_it_with_status_3(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, "create_broken_app", workers=workers, redis_url="redis://unused") as service:
        status, logged = service.end()
    assert (status, "no engine" in logged) == (3, True)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_that_stands_still_is_ended_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setenv("STALL_SECONDS", "1")
    monkeypatch.setenv(STUCK, str(tmp_path / "stuck"))
    with serving(tmp_path) as service:
        service.get("/pid")
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(service.open, "/stuck")
            wait_until((tmp_path / "stuck").exists, DEADLINE_SECONDS)
            if stopped:
                service.process.send_signal(signal.SIGTERM)
        assert isinstance(asked.exception(DEADLINE_SECONDS), ConnectionError | http.client.HTTPException)
        status, logged = service.end()
    assert status == -signal.SIGPROF
    assert "in _never_returns" in logged, logged


def test_a_worker_that_dies_or_stands_still_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALL_SECONDS", "1")
    with serving(tmp_path, workers=2, redis_url="redis://unused") as service:
        dead = int(service.get("/pid"))
        os.kill(dead, signal.SIGKILL)
        wait_until(lambda: not runs(dead), DEADLINE_SECONDS)
        two_serve(service)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            service.open("/stuck")
        two_serve(service)


def two_serve(service: Service) -> None:
    """Return once two processes have answered from now on."""
    seen: set[str] = set()
    wait_until(lambda: seen.add(service.get("/pid")) or len(seen) == 2, DEADLINE_SECONDS)


def test_time_in_which_a_process_was_frozen_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALL_SECONDS", "1")
    with serving(tmp_path) as service:
        pid = service.get("/pid")
        service.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T"))
        time.sleep(2)  # what is tried is that time passes
        service.process.send_signal(signal.SIGCONT)
        assert service.get("/pid") == pid


def test_workers_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2, redis_url="redis://unused") as service:
        worker = int(service.get("/pid"))
        service.process.kill()
        wait_until(lambda: not runs(worker), DEADLINE_SECONDS)
