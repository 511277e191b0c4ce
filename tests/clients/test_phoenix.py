"""Arize's Phoenix, unchanged, as the receiver of traces: the tree, the session, what is said, and what is not.

Phoenix keeps no links between spans, so what a submission and its attempts have in common is looked at in its place;
tests/tracing has the links.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseUsage

from tests.support.service.process import MODEL, Process, ServiceProcess, WorkerProcess
from tests.support.tracing.phoenix import PROJECT, START_SECONDS, Phoenix, Shown, outline

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
  store.append
"""
TRACES = 5

pytestmark = [pytest.mark.clients, pytest.mark.timeout(START_SECONDS + 120)]


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    phoenix = Phoenix(tmp_path_factory.mktemp("phoenix"))
    yield phoenix
    phoenix.stop()


@dataclass(frozen=True)
class Talk:
    """A conversation, the usage of its responses, the one of these that a worker made, and what Phoenix has of it."""

    conversation: str
    usages: Sequence[ResponseUsage]
    background: str
    spans: Sequence[Shown]
    sessions: Sequence[Mapping[str, Any]]

    def named(self, name: str) -> list[Shown]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def talk(
    request: pytest.FixtureRequest, phoenix: Phoenix, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Talk]:
    """A conversation with a service and a worker: a call of a function, its output in a stream, and a question in the
    background. Its spans are in a project of the test's name.
    """
    project = request.node.originalname
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{PROJECT}={project}")
    shared = {"redis_url": redis_url, "key_prefix": tmp_path.name, "traces_url": phoenix.traces_url}
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    started: list[Process] = []
    try:
        api = ServiceProcess(tmp_path / "api", "--no-worker", **shared)
        started += [api, WorkerProcess(tmp_path / "worker", **shared)]
        yield talked(api, phoenix, project)
    finally:
        for process in started:
            process.stop()


def talked(api: ServiceProcess, phoenix: Phoenix, project: str) -> Talk:
    """The conversation, once Phoenix has its last span."""
    client = api.client()
    conversation = client.conversations.create().id
    given: Any = {"model": MODEL, "conversation": conversation, "tools": [FUNCTION]}
    words = f"What is the weather in {CANARY}? Use the tool."
    first = client.responses.create(input=words, instructions=f"Be {CANARY}.", **given)
    (call,) = [item for item in first.output if item.type == "function_call"]
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": f"18 degrees, {CANARY}"}]
    with client.responses.stream(input=output, **given) as stream:
        second = stream.get_final_response()
    job = client.responses.create(input=f"What is {CANARY}?", background=True, **given)
    spans = phoenix.wait_for(project, TRACES)
    ended = client.responses.retrieve(job.id)
    usages = [each.usage for each in (first, second, ended) if each.usage is not None]
    return Talk(conversation, usages, job.id, spans, phoenix.sessions(project))


def test_a_conversation_is_one_session_of_trees_with_the_tokens_of_its_usage(talk: Talk) -> None:
    assert "\n".join(outline(talk.spans)) + "\n" == TREE
    (session,) = talk.sessions
    assert session["session_id"] == talk.conversation
    assert len(session["traces"]) == TRACES - 1, "that in which the conversation was made is of none"
    assert session["token_count_prompt"] == sum(usage.input_tokens for usage in talk.usages)
    assert session["token_count_completion"] == sum(usage.output_tokens for usage in talk.usages)
    chats = [span for span in talk.spans if span.kind == "LLM"]
    assert [span.name for span in chats] == [CHAT] * len(talk.usages)
    for chat, usage in zip(chats, talk.usages, strict=True):
        expected = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "harmonium",
            "gen_ai.request.model": MODEL,
            "gen_ai.response.model": "demo",
            "gen_ai.conversation.id": talk.conversation,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.output_tokens_details.reasoning_tokens,
            "llm.model_name": MODEL,
            "llm.token_count.total": usage.total_tokens,
            "session.id": talk.conversation,
        }
        assert chat.facts.items() >= expected.items()
    assert [chat.facts["gen_ai.request.stream"] for chat in chats] == [False, True, False]
    (submit,), (attempt,) = talk.named("submit"), talk.named("attempt")
    assert submit.trace != attempt.trace
    for name, value in {"gen_ai.response.id": talk.background, "session.id": talk.conversation}.items():
        assert submit.facts[name] == attempt.facts[name] == value
    assert attempt.facts["harmonium.attempt.outcome"] == "ended"
    assert CANARY not in json.dumps([dict(span.facts) for span in talk.spans])
