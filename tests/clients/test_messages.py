"""Anthropic's API with its command line, before a stand-in for vLLM and before messages that are made here."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.clients.clients import PACKAGES, environment, node
from tests.support.engine.connected import scripted
from tests.support.engine.standin import Standin, standing_in
from tests.support.service.process import ACME_KEY, ServiceProcess
from tests.support.service.process import MODEL as SERVED

MODEL = "talker"
SECONDS = 60
CONTEXT_TOKENS = 131_072

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def server() -> Iterator[Standin]:
    """A stand-in for vLLM in a thread."""
    started, made = threading.Event(), list[Standin]()

    async def serve() -> None:
        async with standing_in(scripted(), context_tokens=CONTEXT_TOKENS) as server:
            made.append(server)
            started.set()
            await over.wait()

    loop, over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(SECONDS)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(SECONDS)
        loop.close()


@pytest.fixture(scope="module")
def url(server: Standin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service before the stand-in, for the key of one tenant."""
    folder = tmp_path_factory.mktemp("passing")
    service = ServiceProcess(folder, engine="vllm", engine_url=server.url, api_keys=f"acme:{ACME_KEY}")
    yield service.url
    service.stop()


def said(url: str, home: Path, work: Path, asked: str, *options: str, model: str = MODEL) -> Any:
    """The result of the command line for a text."""
    # npm installs the program beside its wrapper, and runs no script of its package here
    wrapper = PACKAGES / "@anthropic-ai/claude-code" / "cli-wrapper.cjs"
    told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": ACME_KEY, "ANTHROPIC_MODEL": model}
    done = subprocess.run(
        [node(), wrapper, "-p", asked, "--output-format", "json", *options],
        cwd=work,
        env=environment(url, home) | told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def test_the_command_line_runs_a_command_and_reads_what_that_says(url: str, server: Standin, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("the secret word is cobalt\n")
    asked = 'Use Bash: {"command": "cat notes.txt", "description": "Read the notes"}'
    result = said(url, tmp_path, work, asked, "--allowedTools", "Bash(cat:*)")
    assert (result["is_error"], result["num_turns"], result["result"].strip()) == (
        False,
        2,
        "the secret word is cobalt",
    )
    turns = [each for each in server.asked if each.body.get("tools") and each.headers.get("anthropic-beta")]
    assert [turn.body["model"] for turn in turns[-2:]] == [MODEL] * 2
    assert "thinking" in turns[-1].headers["anthropic-beta"]


def test_turns_of_the_command_line_are_one_chain_where_conversations_are_remembered(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    made = ServiceProcess(tmp_path, chats="remembered", api_keys=f"acme:{ACME_KEY}")
    try:
        results = [
            said(made.url, tmp_path, work, f"Count to {turn}.", *(["--continue"] if turn > 1 else []), model=SERVED)
            for turn in range(1, 4)
        ]
        headers = {"authorization": f"Bearer {ACME_KEY}"}
        with httpx.Client(base_url=made.url, headers=headers) as http:
            trees = http.get("/console/api/trees?limit=100").json()["data"]
            turns = [http.get(f"/console/api/trees/{tree['id']}").json()["turns"] for tree in trees]
    finally:
        made.stop()
    assert [result["result"].split() for result in results] == [["1"], ["1", "2"], ["1", "2", "3"]]
    assert [1, 2, 3] in [sorted(turn["depth"] for turn in tree) for tree in turns]
