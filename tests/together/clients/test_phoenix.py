"""Arize's Phoenix, unchanged, as the receiver of traces: the tree, the session, what is said, and what is not.

`scripts/setup phoenix` installs it into .venv-phoenix. It keeps no links between spans, so what a submission and its
attempts have in common is looked at in its place; tests/features/traces has the links.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import ROOT
from tests.support.clients.clients import NOWHERE
from tests.support.ports import free_port
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

PROGRAM = ROOT / ".venv-phoenix" / "bin" / "phoenix"
START_SECONDS = 240.0
"""It imports half a gigabyte, which nobody has compiled the first time, and makes its database, before it answers."""

SPANS_SECONDS = 30.0
STOP_SECONDS = 20.0
SETTINGS = {
    "PHOENIX_HOST": "127.0.0.1",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}

PROJECT = "talk"
"""Spans are kept by project."""

CANARY = "marmalade"
CHAT = f"chat {MODEL}"
CREATE = "POST /v1/responses"
FUNCTION: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

TREE = f"""\
POST /v1/conversations
{CREATE}
  store.chain
  prompt
  {CHAT}
  store.append
{CREATE}
  store.chain
  prompt
  {CHAT}
  store.append
{CREATE}
  store.chain
  prompt
  submit
attempt
  claim
  {CHAT}
  store.append"""
TRACES = 5

pytestmark = [pytest.mark.clients, pytest.mark.timeout(START_SECONDS + 120)]


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a Phoenix, whose folder has all that it keeps, and its log."""
    assert PROGRAM.exists(), "run scripts/setup phoenix first, or these tests by scripts/test --clients"
    folder, port = tmp_path / "phoenix", free_port()
    folder.mkdir()
    told = {"HOME": str(folder), "PHOENIX_WORKING_DIR": str(folder), "PATH": os.environ["PATH"]}
    told |= SETTINGS | {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_port())}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "serve"], cwd=folder, env=told, stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        return http.get("/healthz").is_success

    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SPANS_SECONDS, trust_env=False) as http:
        try:
            wait_until(answers, START_SECONDS, "Phoenix doesn't answer", passing=httpx.TransportError)
            yield http
        finally:
            process.kill()
            process.wait(STOP_SECONDS)


def kept(phoenix: httpx.Client, kind: str) -> list[dict[str, Any]]:
    """The spans or sessions of the project. It has none as long as nothing was sent there."""
    answered = phoenix.get(f"/v1/projects/{PROJECT}/{kind}", params={"limit": 1_000} if kind == "spans" else {})
    return [] if answered.status_code == httpx.codes.NOT_FOUND else answered.raise_for_status().json()["data"]


def below(spans: list[dict[str, Any]], parent: str | None = None, depth: int = 0) -> list[str]:
    """The names of spans as a tree: each below its parent and indented, those side by side when they began."""
    lines: list[str] = []
    for span in spans:
        if span["parent_id"] == parent:
            lines += ["  " * depth + span["name"], *below(spans, span["context"]["span_id"], depth + 1)]
    return lines


def test_a_conversation_is_one_session_of_trees_with_the_tokens_of_its_usage(
    phoenix: httpx.Client, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a function, its output in a stream, and a question in the background, which a worker answers."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={PROJECT}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    traces_url = f"{str(phoenix.base_url).rstrip('/')}/v1/traces"
    shared = {"redis_url": redis_url, "redis_prefix": tmp_path.name, "traces_url": traces_url}
    with ExitStack() as started:
        api = ServiceProcess(tmp_path / "api", "--no-embedded-worker", **shared)
        started.callback(api.stop)
        started.callback(WorkerProcess(tmp_path / "worker", **shared).stop)
        client = api.client()
        conversation = client.conversations.create().id
        given: Any = {"model": MODEL, "conversation": conversation, "tools": [FUNCTION]}
        words = f"What is the weather in {CANARY}? Use the tool."
        first = client.responses.create(input=words, instructions=f"Be {CANARY}.", **given)
        (call,) = [item for item in first.output if item.type == "function_call"]
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": f"18 degrees, {CANARY}"}]
        with client.responses.stream(input=output, **given) as stream:
            second = stream.get_final_response()
        job = client.responses.create(input=f"What is {CANARY}?", background=True, **given).id
        # what has a parent is sent before it
        spans = wait_until(
            lambda: sorted(kept(phoenix, "spans"), key=lambda each: each["start_time"]),
            SPANS_SECONDS,
            f"not {TRACES} traces",
            wanted=lambda found: sum(span["parent_id"] is None for span in found) >= TRACES,
        )
        (session,) = kept(phoenix, "sessions")  # before there is a trace of how the answer is retrieved
        ended = client.responses.retrieve(job)
    usages = [each.usage for each in (first, second, ended) if each.usage is not None]
    assert "\n".join(below(spans)) == TREE
    assert session["session_id"] == conversation
    assert len(session["traces"]) == TRACES - 1, "that in which the conversation was made is of none"
    assert session["token_count_prompt"] == sum(usage.input_tokens for usage in usages)
    assert session["token_count_completion"] == sum(usage.output_tokens for usage in usages)
    chats = [span["attributes"] for span in spans if span["span_kind"] == "LLM"]
    for chat, usage in zip(chats, usages, strict=True):
        expected = {"llm.model_name": MODEL, "llm.token_count.total": usage.total_tokens, "session.id": conversation}
        assert chat.items() >= expected.items()
    for name in ("submit", "attempt"):
        (facts,) = [span["attributes"] for span in spans if span["name"] == name]
        assert (facts["gen_ai.response.id"], facts["session.id"]) == (job, conversation)
    assert CANARY not in json.dumps([span["attributes"] for span in spans])
