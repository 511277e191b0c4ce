"""`harmonium jobs`: what waits or runs, listed and watched, in a pipe and at a terminal."""

import json
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
    deeds: list[Callable[[], object]] = [lambda: None, lambda: ended(first), lambda: None]
    told: list[tuple[str, str]] = []
    with suppress(IndexError):  # there is nothing more to do
        watched = changes(Service(Profile(service.url, None, None)), lambda: deeds.pop(0)())
        told.extend((job["id"], job["status"]) for job in watched)
    assert told[-1] == (first, "cancelled")
    assert len(told) == len(set(told))


def test_nobody_there_is_said_at_once() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert run("jobs", "--watch", "--url", nobody).exit_code == 5
    with pytest.raises(Unreachable):
        next(changes(Service(Profile(nobody, None, None)), lambda: None))
