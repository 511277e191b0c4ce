"""`scripts/tour`: its steps against a service of its own, and its refusals."""

import json
import os
import socket
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

import pytest

from tests.support import ROOT

SECONDS = 120


def tour(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The command, without installing anything first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HARMONIUM_")}
    command = [sys.executable, "scripts/tour.py", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)} | settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.timeout(SECONDS + 10)
def test_a_tour_creates_continues_outlives_its_worker_and_cancels() -> None:
    done = tour("--json", HARMONIUM_LEASE_SECONDS="6", HARMONIUM_STORE_TIMEOUT_SECONDS="2")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows["versions"].endswith("store ok, engine ok, demo")
    assert "tokens/s" in rows["create, streamed"]
    assert not rows["continue"].startswith("0 of")
    assert rows["worker killed"].startswith("completed, ")
    assert "another worker continued after" in rows["worker killed"]
    assert rows["cancel"].startswith("cancelled after ")


@pytest.mark.timeout(SECONDS + 10)
def test_a_command_that_kills_nothing_is_no_worker_that_was_survived() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HARMONIUM_")}
    environment |= {"HARMONIUM_DEMO_TOKENS_PER_SECOND": "60", "HARMONIUM_PORT": str(port)}
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service", "serve", "--data-dir", folder]
        serving = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 60
            while (
                done := tour("--url", f"http://127.0.0.1:{port}", "--kill", "true", "--json")
            ).returncode and time.monotonic() < until:
                time.sleep(0.5)
        finally:
            serving.terminate()
            serving.wait(60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["worker killed"]
    assert told.startswith("completed, ")
    assert told.endswith(", without a pause: perhaps nothing that ran it was killed")


def test_a_service_that_is_not_there_is_said_at_once() -> None:
    done = tour("--url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1:9" in done.stderr
