"""The Codex CLI, unchanged, against the service, with the settings that docs/clients.md shows."""

import json
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.agents import codex_settings
from tests.support.clients.clients import PACKAGES, environment
from tests.support.engine.obedient import obedient, shown
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.waiting import wait_until

SECONDS = 60

KNOWN = "gpt-6.1-sol"
"""A model in Codex's own catalogue, which it gives other tools: additional ones, and custom ones with grammars."""

pytestmark = pytest.mark.clients


class Codex:
    """The command, with a home of its own and a folder to work in."""

    def __init__(self, url: str, folder: Path, model: str = MODEL, *, websockets: bool = False) -> None:
        self._folder = folder / "work"
        self._folder.mkdir()
        self._environment = environment(url, folder)
        codex_settings(folder, url, model, "\nsupports_websockets = true\n" if websockets else "")

    def run(self, *arguments: str | Path) -> list[dict[str, Any]]:
        """The events that `codex exec --json` prints."""
        command = [PACKAGES / ".bin" / "codex", "exec", "--skip-git-repo-check", "--json", *arguments]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def codex(url: str, tmp_path: Path) -> Codex:
    return Codex(url, tmp_path)


def items(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The items of a kind that were completed."""
    done = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def test_a_shell_command_is_run_and_the_conversation_resumed(codex: Codex, tmp_path: Path) -> None:
    (tmp_path / "work" / "notes.txt").write_text("the secret word is cobalt\n")
    # the sandboxes that it would use aren't everywhere
    asked = 'Hello! My name is Ada. Please run the shell command "cat notes.txt" for me.'
    events = codex.run("--sandbox", "danger-full-access", asked)
    (command,) = items(events, "command_execution")
    assert command["aggregated_output"] == "the secret word is cobalt\n"
    assert "the secret word is cobalt" in items(events, "agent_message")[-1]["text"]
    assert items(events, "reasoning"), "a summary of reasoning"
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["output_tokens"] > events[-1]["usage"]["reasoning_output_tokens"] > 0
    (answer,) = items(codex.run("resume", "--last", "What is my name?"), "agent_message")
    assert "Ada" in answer["text"]


def test_an_answer_keeps_to_a_schema(codex: Codex, tmp_path: Path) -> None:
    properties = {"city": {"type": "string"}, "inhabitants": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (answer,) = items(codex.run("--output-schema", tmp_path / "schema.json", "Tell me of Paris."), "agent_message")
    found = json.loads(answer["text"])
    assert {name: type(value) for name, value in found.items()} == {"city": str, "inhabitants": int}


def test_a_conversation_is_compacted_on_its_way(codex: Codex, tmp_path: Path) -> None:
    codex.run("Hello! My name is Ada.")
    # what Codex asks only of a provider of this name, and never later than this
    compacting = ("-c", 'model_providers.harmonium.name="OpenAI"', "-c", "model_auto_compact_token_limit=10")
    events = codex.run("resume", "--last", *compacting, "What is my name?")
    assert "Ada" in items(events, "agent_message")[-1]["text"]
    (kept,) = (tmp_path / ".codex" / "sessions").rglob("*.jsonl")
    assert '"type":"compaction"' in kept.read_text()


def test_a_custom_tool_among_additional_ones_is_called(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "service", model_aliases=KNOWN)
    try:
        events = Codex(service.url, tmp_path, KNOWN).run('text("cob" + "alt") // use the exec tool')
    finally:
        service.stop()
    assert "\ncobalt" in items(events, "agent_message")[-1]["text"]


def creates(service: ServiceProcess) -> int:
    """How many responses were asked for over WebSockets."""
    return service.log.count("method=CREATE")


PATIENT = ("-c", "model_providers.harmonium.stream_max_retries=20")
"""Codex gives up after 6 s, and a service may take longer to start on a busy machine."""


def under_way(service: ServiceProcess) -> bool:
    """Whether a turn is, behind the warm-up."""
    return creates(service) >= 1 and scraped(service.http()).value("harmonium_requests_in_progress") == 1


@pytest.mark.parametrize("end", [ServiceProcess.kill, ServiceProcess.stop], ids=["killed", "stopped"])
def test_a_service_restarted_amid_a_turn_is_found_again(tmp_path: Path, end: Callable[[ServiceProcess], None]) -> None:
    service = ServiceProcess(tmp_path / "service", demo_tokens_per_second=30, shutdown_seconds=15)
    try:
        codex = Codex(service.url, tmp_path, websockets=True)
        codex.run("Hello! My name is Ada.")
        before = creates(service)
        with ThreadPoolExecutor() as beside:
            turn = beside.submit(codex.run, "resume", "--last", *PATIENT, "Count to 60.")
            wait_until(lambda: creates(service) > before and under_way(service), SECONDS)
            end(service)
            service.start()
            answers = items(turn.result(), "agent_message")
        assert answers[-1]["text"].endswith("\n60")
        assert "POST" not in service.log
        (answer,) = items(codex.run("resume", "--last", "What is my name?"), "agent_message")
        assert "Ada" in answer["text"]
    finally:
        service.stop()


LOOK = [
    ("spawn_agent", {"task_name": "look", "fork_turns": "none", "message": "Use functions.exec: text('cob' + 'alt')"}),
    ("send_message", {"target": "look", "message": "Take your time."}),
    ("wait_agent", {"timeout_ms": 20_000}),
    ("followup_task", {"target": "look", "message": "Use functions.exec: text('ind' + 'igo')"}),
    ("wait_agent", {"timeout_ms": 20_000}),
]
TASKS = "\n".join(f"Use collaboration.{name}: {json.dumps(told)}" for name, told in LOOK)
"""The question to a parent. A model of this name has the tools, as Codex' catalogue has it speak to other agents."""


def test_a_sub_agent_is_sent_tasks_and_what_it_finds_is_read(redis_url: str, tmp_path: Path) -> None:
    engine = obedient()
    service = ServiceBeside(tmp_path / "service", redis_url, engine, model_aliases=KNOWN)
    try:
        codex = Codex(service.url, tmp_path, KNOWN)
        codex.run(TASKS)
        last = shown(engine.generations[-1])
        codex.run("resume", "--last", "Use functions.exec: text('vio' + 'let')")
    finally:
        service.stop()
    first, second = re.findall(r"(?s)Sender: \S*/look\nPayload:\n(.*?)<\|", last)
    assert ("cobalt" in first, "indigo" in second) == (True, True)
    assert any("Take your time." in shown(each) and "cobalt" in shown(each) for each in engine.generations)
    assert "violet" in shown(engine.generations[-1])


OPENAI_SEALED = "gAAAAABqXw" + "Zm9yZWlnbg" * 30
"""What OpenAI seals looks like this."""

ELSEWHERE: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "My dog is Rex."}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": OPENAI_SEALED},
    {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [{"type": "summary_text", "text": "A dog."}],
        "encrypted_content": OPENAI_SEALED,
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "dogs"}},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello, Rex!"}]},
    {"type": "ghost_snapshot", "ghost_commit": {"id": "abc", "parent": None}},
    {"type": "context_compaction", "encrypted_content": OPENAI_SEALED},
    {"type": "context_compaction"},
]
"""Items of a session at OpenAI, as Codex keeps them."""

COMPACTED: dict[str, Any] = {"type": "compaction_summary", "encrypted_content": OPENAI_SEALED}
"""The item that stands for all before it. Codex sends a compaction in its place, and never recovers from a refusal."""


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(ELSEWHERE, id="whole"),
        pytest.param([*ELSEWHERE, COMPACTED], id="compacted"),
    ],
)
def test_a_session_that_began_elsewhere_is_resumed(
    redis_url: str, tmp_path: Path, history: list[dict[str, Any]]
) -> None:
    engine = obedient()
    service = ServiceBeside(tmp_path / "service", redis_url, engine, model_aliases=KNOWN)
    try:
        codex = Codex(service.url, tmp_path, KNOWN)
        codex.run("My cat is Tom.")
        (kept,) = (tmp_path / ".codex" / "sessions").rglob("*.jsonl")
        last = json.loads(kept.read_text().splitlines()[-1])
        more = [
            {**last, "ordinal": last["ordinal"] + number, "type": "response_item", "payload": item}
            for number, item in enumerate(history, 1)
        ]
        with kept.open("a") as rollout:
            rollout.writelines(json.dumps(line) + "\n" for line in more)
        for turn in range(2):
            codex.run("resume", "--last", f"Use functions.exec: text('turn-' + {turn})")
    finally:
        service.stop()
    prompt = shown(engine.generations[-1])
    assert [words in prompt for words in ("My cat is Tom.", "My dog is Rex.", "Hello, Rex!", "turn-0")] == [True] * 4
    assert OPENAI_SEALED not in prompt
