"""Tools of MCP servers, called by a model that speaks by a chat template: its template writes each prompt anew."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from service.background.timing import Timing
from service.backoff import Backoff
from service.process import Settings
from tests.support.markup.speaker import END, Speaker
from tests.support.service import inside
from tests.support.service.background import ended
from tests.support.tools.server import McpServer, mcp_server

serving = partial(inside.serving, timing=Timing(poll_seconds=0.05, engine_away=Backoff(0.01, 0.05)))

ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 40}}\n</tool_call>'


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    with mcp_server(tmp_path_factory.mktemp("mcp")) as server:
        yield server


def said(prompt: str) -> str:
    """What the model says: it adds twice, and then it knows."""
    outcomes = prompt.count("<|im_start|>tool\n42")
    if outcomes == 0:
        return f"<think>\nI add.\n</think>\n\n{ADD}{END}"
    if outcomes == 1:
        return f"Again.\n\n{ADD}{END}"
    return f"It is 42.{END}"


def declared(tools: McpServer, **members: Any) -> Any:
    return {
        "type": "mcp",
        "server_label": "maths",
        "server_url": tools.url,
        "allowed_tools": ["add"],
        "require_approval": "never",
        **members,
    }


def kinds(response: Any) -> list[str]:
    return [item.type for item in response.output]


CALLED = ["mcp_list_tools", "reasoning", "mcp_call", "message", "mcp_call", "message"]


@pytest.mark.parametrize("pieces", [2, 9])
async def test_wherever_its_engine_breaks_each_call_is_made_once_and_read(
    settings: Settings, tools: McpServer, pieces: int
) -> None:
    speaker = Speaker("qwen3", said, pieces=pieces)
    speaker.breaks_behind = [pieces * 3] * 40
    given = settings.model_copy(update={"mcp_allow": (tools.url,), "max_attempts": 100})
    async with serving(given, speaker) as service, service.client() as client:
        begun = await client.responses.create(
            model="speaker", input="2 + 40?", tools=[declared(tools)], background=True
        )
        response = await ended(client, begun.id)
    assert (response.status, kinds(response)) == ("completed", CALLED)
    assert response.output_text.endswith("It is 42.")
    assert len(speaker.generations) > 5
