"""What a person sees who starts it at a terminal, and how it ends there: real processes, each with a terminal."""

import http.client
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.build import this_build
from tests.support.ports import free_port
from tests.support.service.process import ALONE, HARMONIUM
from tests.support.service.terminal import COLUMNS, CTRL_C, Terminal, at_a_terminal
from tests.support.waiting import wait_until

END_SECONDS = 15.0
"""How long it may take to end on a busy machine, whatever it does: half of what open answers get."""


def started(folder: Path, **settings: object) -> dict[str, object]:
    """The settings of a service with a data folder and a port of its own."""
    return {"data_dir": folder / "data", "port": free_port(), **settings}


@contextmanager
def open_stream(port: int) -> Generator[http.client.HTTPResponse]:
    """A streamed answer that has begun, and goes on for minutes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"model": "gpt-oss-20b", "input": "Count to 100.", "stream": True})
    connection.request("POST", "/v1/responses", body, {"content-type": "application/json"})
    with connection.getresponse() as response:
        assert response.readline().startswith(b"event: response.created")
        yield response
    connection.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the line to paste needs curl")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_card_says_what_is_there_and_its_line_to_paste_works(tmp_path: Path, workers: int) -> None:
    (tmp_path / ".env").write_text(f"HARMONIUM_WORKERS={workers}\n")
    settings = started(tmp_path)
    with at_a_terminal(tmp_path, "serve", program=ALONE, **settings) as terminal:
        terminal.shows("try it\ncurl ")
        terminal.shows("Count to 3.\"}'\n")
        card = terminal.text
        command = card[card.index("\ncurl ") :]
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=True)
        answer = json.loads(done.stdout)
        terminal.shows(f"resp_…{answer['id'][-4:]}")
        terminal.press(CTRL_C)
        status, _ = terminal.end(END_SECONDS)
    assert answer["output"][-1]["content"][0]["text"] == "1\n2\n3"
    assert f"harmonium      {this_build().version} at http://127.0.0.1:{settings['port']}/v1\n" in card
    assert "demo, a stand-in for gpt-oss-20b: no real model" in card
    assert f"in {settings['data_dir']}, 0 responses\n" in card
    assert (status, "WARNING" in terminal.text) == (0, False), terminal.text
    (line,) = [line for line in terminal.text.splitlines() if "POST" in line]
    assert re.fullmatch(r"\d\d:\d\d:\d\d POST /v1/responses 200 \d+ ms 72→\d+ tokens resp_….{4}", line)
    assert len(line) <= COLUMNS


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_ctrl_c_cuts_off_what_is_open(tmp_path: Path, workers: int) -> None:
    settings = started(tmp_path, workers=workers, demo_tokens_per_second=1)
    with at_a_terminal(tmp_path, "serve", program=ALONE, **settings) as terminal:
        terminal.shows("try it")
        with open_stream(int(str(settings["port"]))):
            terminal.press(CTRL_C)
            terminal.shows("Ctrl-C again closes all connections at once")
            assert terminal.process.poll() is None
            terminal.press(CTRL_C)
            status, seconds = terminal.end(END_SECONDS)
    assert (status, seconds < END_SECONDS) == (0, True)
    assert not re.search("Traceback|ERROR|Exception", terminal.text), terminal.text


def _python_imports(terminal: Terminal) -> object:
    return terminal.has_loaded("msgspec") and not terminal.catches(signal.SIGINT)


def _the_store_starts(terminal: Terminal) -> object:
    return terminal.catches(signal.SIGTERM) and terminal.children()


def _workers_start(terminal: Terminal) -> object:
    return len(terminal.children()) >= 3


@pytest.mark.parametrize(
    ("workers", "moment"),
    [(1, _python_imports), (1, _the_store_starts), (2, _workers_start)],
    ids=["while Python imports", "while the store starts", "while workers start"],
)
def test_a_ctrl_c_during_the_start_ends_it_quietly(
    tmp_path: Path, workers: int, moment: Callable[[Terminal], object]
) -> None:
    program = (str(HARMONIUM),) if moment is _python_imports else ALONE  # which imports much before it is `harmonium`
    with at_a_terminal(tmp_path, "serve", program=program, **started(tmp_path, workers=workers)) as terminal:
        wait_until(lambda: moment(terminal))
        terminal.press(CTRL_C)
        status, seconds = terminal.end(2 * END_SECONDS)
    assert status in (0, -signal.SIGINT)
    assert seconds < END_SECONDS
    assert terminal.text.strip() in ("", "^C"), terminal.text
