"""`harmonium jobs`: what waits or runs, listed and watched, in a pipe and at a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest

from service.commands.client.errors import Unreachable
from service.commands.client.profile import Profile
from service.commands.client.reading import changes
from service.commands.client.service import Service
from tests.support.ports import free_port
from tests.support.service.commands import id_of, run, said
from tests.support.service.process import ServiceProcess

NEVER_ENDING = "Count to 1000."


def begun() -> str:
    return said("ask", "--background", NEVER_ENDING).strip()


def ended(id: str) -> None:
    said("cancel", id)
    said("wait", id, status=1)


@pytest.mark.usefixtures("service")
def test_what_runs_is_listed_until_it_has_ended() -> None:
    id_of(run("ask", "Count to 2."))
    id = begun()
    (line,) = [line for line in said("jobs").splitlines() if line.startswith(id)]
    assert line.endswith(NEVER_ENDING)
    (job,) = [each for each in map(json.loads, said("jobs", "--json").splitlines()) if each["id"] == id]
    assert job["status"] in ("queued", "in_progress")
    ended(id)
    nothing = run("jobs")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "nothing waits or runs\n")


@pytest.mark.usefixtures("service")
def test_watching_in_a_pipe_tells_each_change_once(service: ServiceProcess) -> None:
    first = begun()
    second = ""
    deeds: list[Callable[[], object]] = []

    def wait() -> None:
        deeds.pop(0)()

    def start() -> None:
        nonlocal second
        second = begun()

    def remove() -> None:
        ended(second)
        said("rm", "-y", second)

    deeds += [lambda: None, start, lambda: ended(first), remove]
    told: list[tuple[str, str]] = []
    with suppress(IndexError):  # there is nothing more to do
        told.extend((job["id"], job["status"]) for job in changes(Service(Profile(service.url, None, None)), wait))
    final = [(id, status) for id, status in told if status not in ("queued", "in_progress")]
    assert final == [(first, "cancelled"), (second, "deleted")]
    assert len(told) == len(set(told))
    assert next(id for id, _ in dict.fromkeys(told)) == first


def test_a_terminal_shows_them_in_one_place(service: ServiceProcess) -> None:
    id = begun()
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "service", "jobs", "--watch", "--url", service.url]
    with subprocess.Popen(command, stdout=slave, stderr=slave) as watching:
        shown = b""
        while b"\x1b[1F\x1b[J" not in shown:  # drawn a second time, over the first
            shown += os.read(master, 65_536)
        ended(id)
        while b"nothing waits" not in shown:
            shown += os.read(master, 65_536)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    os.close(slave)
    os.close(master)
    assert id.encode() in shown


def test_nobody_there_is_said_at_once() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert run("jobs", "--watch", "--url", nobody).exit_code == 5
    with pytest.raises(Unreachable):
        next(changes(Service(Profile(nobody, None, None)), lambda: None))
    assert run("jobs", "resp_1").exit_code == 2
