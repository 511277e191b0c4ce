"""Servers of archives that are killed, and started again on what they have."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.archive import servers
from tests.support.archive.opened import Place
from tests.support.ports import free_port
from tests.support.waiting import wait_until


class Mortal:
    """One server, at a port that stays the same."""

    def __init__(
        self, place: Place, command: Sequence[str | Path], answers: Callable[[], bool], user: str | None = None
    ) -> None:
        """Nothing is started yet."""
        self.place, self._answers = place, answers
        self._command, self._user = command, user
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, and don't wait."""
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self.launch()
        wait_until(self._answers, servers.START_SECONDS, f"no {self.place.kind}")

    def kill(self) -> None:
        """End it as a power cut would, with all processes that it has."""
        assert self._process is not None
        of_it = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, of_it)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def mortal(kind: str, folder: Path, environment: pytest.MonkeyPatch) -> Iterator[Mortal]:
    """A server of a kind, which has what it has in a new folder, and is known to the environment; the test is skipped
    where it isn't installed.
    """
    folder.mkdir()
    with _s3(folder) if kind == "s3" else _postgres() as made:
        for name, value in made.place.environment.items():
            environment.setenv(name, value)
        made.start()
        try:
            yield made
        finally:
            made.kill()


@contextmanager
def _s3(folder: Path) -> Iterator[Mortal]:
    port = free_port()
    place = Place("s3", f"s3://{servers.BUCKET}", port, servers.access(port))
    command = [sys.executable, "-m", "tests.support.archive.s3_server", str(port), folder / "journal"]
    yield Mortal(place, command, lambda: servers.has_bucket(port))


@contextmanager
def _postgres() -> Iterator[Mortal]:
    programs = servers.postgres_programs()
    if programs is None:
        pytest.skip("no Postgres is installed; CI installs Debian's")
    with servers.postgres_folder(programs) as (data, user):
        port = free_port()
        place = Place("postgres", servers.database(port), port)
        command = servers.postgres_command(programs, data, port)
        yield Mortal(place, command, lambda: servers.is_ready(programs, port), user)
