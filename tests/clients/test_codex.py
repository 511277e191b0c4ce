"""The Codex CLI, unchanged, against the service, with the settings that docs/clients.md shows."""

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.clients import PACKAGES, environment
from tests.support.documents import block
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.waiting import wait_until

SECONDS = 60
ADDRESS = "http://localhost:8000"

KNOWN = "gpt-6.1-sol"
"""A model in Codex's own catalogue, which it gives other tools: additional ones, and custom ones with grammars."""

pytestmark = pytest.mark.clients


class Codex:
    """The command, with a home of its own and a folder to work in."""

    def __init__(self, url: str, folder: Path, model: str = MODEL, *, websockets: bool = False) -> None:
        self._folder = folder / "work"
        self._folder.mkdir()
        self._environment = environment(url, folder)
        (folder / ".codex").mkdir()
        config = block("docs/clients.md", "toml").replace(ADDRESS, url).replace(MODEL, model)
        config += "\nsupports_websockets = true\n" if websockets else ""
        (folder / ".codex" / "config.toml").write_text(config)

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
