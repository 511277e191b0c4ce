"""A service that is killed in the middle of an import: the import that is repeated brings what is missing."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.commands.command_line import app
from tests.support.service.commands import said
from tests.support.service.process import HARMONIUM, MODEL, ServiceProcess
from tests.support.waiting import wait_until

SEAL_KEY = "a-seal-key-of-more-than-32-characters"
UNREACHABLE = 5
TURNS = 60
KILLED_AT = (5, 40)
"""How many turns are there when the service is killed."""

PIPE_BYTES = 1 << 20
"""Room for all of them: who writes them doesn't wait."""


def grown(service: ServiceProcess) -> str:
    """A tree of so many turns, with a fork at each third one; the id of its root."""
    ids: list[str] = []
    for number in range(TURNS):
        parent = None if not ids else ids[-1] if number % 3 else ids[number // 2]
        answer = service.client().responses.create(
            model=MODEL, input=f"Count to {number % 4 + 1}.", previous_response_id=parent
        )
        ids.append(answer.id)
    return ids[0]


def turns_of(text: str) -> list[dict[str, Any]]:
    """The turns of a file; without the seals, which are never the same twice."""
    return [{**json.loads(line), "seal": None} for line in text.splitlines()[1:]]


def killed_on_its_way(service: ServiceProcess, root: str, file: Path, turns: int) -> int:
    """Have a tree be imported until so many turns of it are there, and kill the service and its store; how that ended.

    The import gets the last turn after the kill, so that it has not ended before, however quick it is.
    """

    def there() -> bool:
        tree = service.http().get(f"/console/api/trees/{root}")
        return tree.status_code == 200 and len(tree.json()["turns"]) >= turns

    *lines, last = file.read_bytes().splitlines(keepends=True)
    with subprocess.Popen(
        [HARMONIUM, "import", "-", "--url", service.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pipesize=PIPE_BYTES,
    ) as importing:
        assert importing.stdin
        importing.stdin.write(b"".join(lines))
        importing.stdin.flush()
        wait_until(there, 60, "too few turns came")
        service.process.send_signal(signal.SIGSTOP)  # the store dies first: it would end by itself without its owner
        os.kill(service.redis_pid(), signal.SIGKILL)
        service.kill()
        importing.communicate(last, 60)
        return importing.returncode


def test_an_import_that_a_kill_cut_off_is_whole_once_it_is_repeated(
    start: Callable[..., ServiceProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = start(seal_keys=SEAL_KEY), start(seal_keys=SEAL_KEY, data_dir=tmp_path / "data")
    root = grown(one)
    file = tmp_path / "tree.jsonl"
    file.write_text(said("export", root, "--url", one.url))
    for turns in KILLED_AT:
        assert killed_on_its_way(other, root, file, turns) == UNREACHABLE
        other.start()
    outcome = json.loads(said("import", str(file), "--url", other.url, "--json"))
    assert (outcome["imported"] > 0, outcome["imported"] + outcome["kept"]) == (True, TURNS)
    assert turns_of(said("export", root, "--url", other.url)) == turns_of(file.read_text())
    assert said("tree", root, "--url", other.url) == said("tree", root, "--url", one.url)
    leaf = json.loads(file.read_text().splitlines()[-1])["id"]
    assert other.client().responses.create(model=MODEL, input="Hi", previous_response_id=leaf).status == "completed"
    other.stop()
    monkeypatch.setenv("HARMONIUM_DATA_DIR", str(tmp_path / "data"))
    checked = CliRunner().invoke(app, ["fsck", "--json"])
    assert (checked.exit_code, json.loads(checked.output)["complaints"]) == (0, []), checked.output
