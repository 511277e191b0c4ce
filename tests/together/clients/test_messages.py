"""Anthropic's API with its command line, before a stand-in for vLLM and before messages that are made here."""

import asyncio
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.replay import BLOCKS
from tests.support import ROOT
from tests.support.clients.clients import PACKAGES, PYTHON, environment, node
from tests.support.engine.connected import scripted
from tests.support.engine.obedient import obedient, shown
from tests.support.engine.standin import Standin, standing_in
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import ACME_KEY, ServiceProcess
from tests.support.service.process import MODEL as SERVED
from tests.support.tools import many

MODEL = "talker"
SECONDS = 60
CONTEXT_TOKENS = 131_072

pytestmark = pytest.mark.clients


def test_each_block_that_the_sdk_declares_has_its_fate() -> None:
    told = subprocess.run(
        [PYTHON, "-m", "tests.support.declared"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(json.loads(told.stdout)["blocks"]) <= BLOCKS.keys()


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


def said(url: str, home: Path, work: Path, asked: str, *options: str, model: str = MODEL, **variables: str) -> Any:
    """The result of the command line for a text."""
    # npm installs the program beside its wrapper, and runs no script of its package here
    wrapper = PACKAGES / "@anthropic-ai/claude-code" / "cli-wrapper.cjs"
    told = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": ACME_KEY, "ANTHROPIC_MODEL": model}
    done = subprocess.run(
        [node(), wrapper, "-p", asked, "--output-format", "json", *options],
        cwd=work,
        env=environment(url, home) | told | variables,
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
    made = ServiceProcess(tmp_path, chats="remember", api_keys=f"acme:{ACME_KEY}")
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


SHORT = "look_up_the_height_of_the_tide_and_the_time_of_high_water_at_any_place_of_the_coast"
LONG = f"mcp__tides__{SHORT}"
"""The name by which the model knows the tool: longer than OpenAI's names may be."""

FIND = f'Use functions.ToolSearch: {{"query": "select:{LONG}"}}\n'
CALL = f'Use functions.{LONG}: {{"place": "Brest"}}'


@pytest.mark.parametrize(("asked", "searches"), [(FIND + CALL, "true"), (CALL, "false")], ids=["searched", "all sent"])
def test_a_tool_with_a_name_of_95_characters_is_called_among_200(
    redis_url: str, tmp_path: Path, asked: str, searches: str
) -> None:
    (tmp_path / "work").mkdir()
    servers = {"tides": {"command": sys.executable, "args": [many.__file__, SHORT]}}
    options = ["--mcp-config", json.dumps({"mcpServers": servers}), "--strict-mcp-config", "--allowedTools", LONG]
    engine = obedient()
    service = ServiceBeside(tmp_path / "service", redis_url, engine, chats="remember")
    try:
        for more in ([], ["--continue"]):
            result = said(
                *(service.url, tmp_path, tmp_path / "work", asked, *options, *more),
                model=SERVED,
                ENABLE_TOOL_SEARCH=searches,
            )
            assert f"{SHORT} says it is {{'place': 'Brest'}}" in result["result"]
    finally:
        service.stop()
    prompt = shown(engine.generations[-1])
    assert ("type mcp__tides__chart_199 =" in prompt) == (searches == "false")
    # its first line is of its biller, and none of the model's business; it has its rules behind
    assert ("x-anthropic-billing-header" in prompt, "security testing" in prompt) == (False, True)
    assert "DeferredToolPlaceholder" not in prompt


SEARCHES: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "I search.", "signature": "EqQBCkYIBxgCKkBm" * 9},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_regex", "input": {"pattern": "tide"}},
    {
        "type": "tool_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "mcp__tides__gone"}],
        },
    },
    {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_search", "input": {"query": "tides at Brest"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_2",
        "content": [
            {
                "type": "web_search_result",
                "url": "https://tides.example/brest",
                "title": "Tides at Brest",
                "encrypted_content": "EqgfCioIARgB" * 9,
                "page_age": "2 days",
            }
        ],
    },
    {"type": "text", "text": "High water is at ten.", "citations": []},
]
"""What Anthropic's own tools leave in a session."""


def test_a_session_with_searches_that_began_elsewhere_is_resumed(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    engine = obedient()
    service = ServiceBeside(tmp_path / "service", redis_url, engine, chats="remember")
    told = service.url, tmp_path, tmp_path / "work"
    try:
        id = said(*told, "My cat is Tom.", model=SERVED)["session_id"]
        (kept,) = tmp_path.rglob(f"{id}.jsonl")
        append(kept, "user", "When is high water?")
        append(kept, "assistant", SEARCHES)
        for turn in (1, 2):
            wish = f'Use functions.Bash: {{"command": "echo turn-{turn}-$((6 * 7))", "description": "As asked"}}'
            result = said(*told, wish, "--resume", id, "--allowedTools", "Bash", model=SERVED)
            assert result["result"].strip() == f"turn-{turn}-42"
    finally:
        service.stop()
    prompt = shown(engine.generations[-1])
    known = ("My cat is Tom.", "When is high water?", "High water is at ten.", "tides.example/brest", "turn-1-42")
    assert [words for words in known if words not in prompt] == []


def append(transcript: Path, role: str, content: Any) -> None:
    """Go on with a transcript, as the command line writes it, by a message that it never had."""
    lines = [json.loads(line) for line in transcript.read_text().splitlines()]
    (*_, like) = (line for line in lines if line.get("type") == role)
    (*_, last) = (line for line in lines if "uuid" in line)
    new = like["message"] | {"content": content} | ({"id": f"msg_{uuid.uuid4().hex}"} if role == "assistant" else {})
    line = like | {"parentUuid": last["uuid"], "uuid": str(uuid.uuid4()), "message": new}
    with transcript.open("a") as kept:
        kept.write(json.dumps(line) + "\n")
