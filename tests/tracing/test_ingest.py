"""`POST /v1/traces/ingest`: what the Agents SDK tells of its own traces."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from service.api.traces import MAX_TOLD
from service.settings.core import ApiKey
from service.settings.settings import Settings
from tests.support.service.inside import Inside, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY
from tests.support.tracing.receiver import Receiver

INGEST = "/v1/traces/ingest"
TRACE = {"object": "trace", "id": "trace_1", "workflow_name": "Trip", "group_id": "thread-7", "metadata": None}
STARTED, ENDED = "2026-11-22T10:00:00.250000+00:00", "2026-11-22T10:00:01Z"


def span(id: str, parent: str | None = None, error: Any = None, **data: Any) -> dict[str, Any]:
    """A span as the SDK exports it."""
    return {
        "object": "trace.span",
        "id": id,
        "trace_id": "trace_1",
        "parent_id": parent,
        "started_at": STARTED,
        "ended_at": ENDED,
        "span_data": data,
        "error": error,
    }


TOLD = [
    TRACE,
    span("span_a", type="agent", name="planner", handoffs=[], tools=["look_up"], output_type="str"),
    span(
        "span_b",
        "span_a",
        type="generation",
        model="m",
        input=[{"content": "x"}],
        usage={"input_tokens": 3, "output_tokens": 4},
    ),
    span(
        "span_c", "span_a", {"message": "boom", "data": None}, type="function", name="look_up", input="{}", output=None
    ),
    span("span_d", "span_a", type="response", response_id="resp_1", usage={"total_tokens": 1}),
    span("span_e", "span_a", type="handoff", from_agent="a", to_agent="b"),
    span("span_f", "span_a", type="custom", name="turn", data={"sdk_span_type": "turn", "turn": 1}),
]


async def posted(inside: Inside, body: Any, key: str = "none") -> Any:
    """The answer to what is told."""
    async with inside.http() as http:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "openai-beta": "traces=v1"}
        return await http.post(INGEST, content=content, headers=headers)


async def test_a_trace_of_the_agents_sdk_becomes_a_tree_of_spans(traced: Settings, receiver: Receiver) -> None:
    async with serving(traced, scripted([])) as inside:
        answered = await posted(inside, {"data": TOLD})
        assert (answered.status_code, answered.content) == (204, b"")
        await receiver.until("turn")
        await receiver.until("invoke_agent planner")
    whole, agent = receiver.one("Trip"), receiver.one("invoke_agent planner")
    assert (whole.parent, agent.parent) == ("", whole.id)
    below = {each.name for each in receiver.below(agent)}
    assert below == {"chat m", "execute_tool look_up", "response", "handoff", "turn"}
    assert (agent.end - agent.start, agent.start) == (750_000_000, 1_795_341_600_250_000_000)
    chat, tool = receiver.one("chat m"), receiver.one("execute_tool look_up")
    assert (chat.facts["gen_ai.usage.input_tokens"], chat.facts["gen_ai.usage.output_tokens"]) == (3, 4)
    assert (tool.failed, tool.words, tool.facts["gen_ai.tool.name"]) == (True, "", "look_up")
    assert receiver.one("response").facts["gen_ai.response.id"] == "resp_1"
    mine = [each for each in receiver.spans if each.trace == whole.trace]
    assert len(mine) == len(TOLD)
    assert {each.facts["session.id"] for each in mine} == {"thread-7"}
    assert b"boom" not in receiver.text


async def test_the_same_ids_of_two_tenants_are_two_traces_and_of_one_the_same(
    traced: Settings, receiver: Receiver
) -> None:
    keys = (ApiKey("acme", SecretStr(ACME_KEY)), ApiKey("globex", SecretStr(GLOBEX_KEY)))
    async with serving(traced.model_copy(update={"api_keys": keys}), scripted([])) as inside:
        for key in (ACME_KEY, GLOBEX_KEY, ACME_KEY):
            assert (await posted(inside, {"data": [TRACE]}, key)).status_code == 204
        assert (await posted(inside, {"data": [TRACE]}, "sk-unknown")).status_code == 401
        first, second, third = await receiver.until("Trip", 3)
    assert first.trace == third.trace != second.trace
    assert first.id == third.id != second.id


async def test_where_nothing_is_traced_it_is_accepted_and_dropped(settings: Settings) -> None:
    async with serving(settings, scripted([])) as inside:
        assert (await posted(inside, {"data": TOLD})).status_code == 204
        assert (await posted(inside, {"data": [{"object": "trace"}]})).status_code == 400


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "data"),
        ({"data": [TRACE] * (MAX_TOLD + 1)}, "data"),
        ({"data": [TRACE, 1]}, "data[1]"),
        ({"data": [{"object": "other"}]}, "data[0].object"),
        ({"data": [{"object": "trace", "id": "x" * 257}]}, "data[0].id"),
        ({"data": [{"object": "trace.span", "id": "s"}]}, "data[0].trace_id"),
        ({"data": [{**span("s", type="agent"), "started_at": "yesterday"}]}, "data[0].started_at"),
        ({"data": [{**span("s", type="agent"), "ended_at": "9999-01-01T00:00:00Z"}]}, "data[0].ended_at"),
        ({"data": [span("s", name="x")]}, "data[0].span_data.type"),
        (b'{"data":[{"object":"trace","id":"\\ud800"}]}', None),
    ],
)
async def test_what_is_no_trace_is_refused(settings: Settings, body: Any, param: str | None) -> None:
    async with serving(settings, scripted([])) as inside:
        answered = await posted(inside, body)
    assert answered.status_code == 400, answered.text
    if param is not None:
        assert answered.json()["error"]["param"] == param
