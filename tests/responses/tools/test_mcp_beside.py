"""Tools of MCP servers beside all else that a response may have: compaction, log probabilities, the SDK's fold."""

from typing import Any

import pytest

from service.settings.settings import Settings
from tests.responses.tools.test_mcp_responses import ADD, allowing, call, kinds, server
from tests.support.service.background import ended
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.seen import ask, prompts
from tests.support.tools.server import McpServer

SUMMARY = "Sums were made."


@pytest.mark.parametrize("background", [False, True])
async def test_a_conversation_that_compacts_itself_calls_tools_behind_that(
    settings: Settings, fixture: McpServer, background: bool
) -> None:
    summary = [*thought("Hm."), *then(answer(SUMMARY))]
    engine = scripted(
        [call("add", ADD)], [answer("42.")], [summary], [call("add", ADD)], [answer("Still 42.")], [answer("Yes.")]
    )
    tools = [server(fixture)]
    compacting: Any = [{"type": "compaction", "compact_threshold": 1}]
    async with serving(allowing(settings, fixture), engine) as inside, inside.client() as client:
        first = await ask(client, input="2 + 40?", tools=tools)
        made = await ask(
            client,
            input="Sure?",
            tools=tools,
            previous_response_id=first.id,
            context_management=compacting,
            background=background,
        )
        second = await ended(client, made.id)
        third = await ask(client, input="So?", tools=tools, previous_response_id=second.id)

    assert second.status == "completed"
    assert kinds(second) == ["compaction", "mcp_call", "message"]
    assert second.output[1].to_dict()["output"] == "42"
    assert kinds(third) == ["message"]
    behind, last = prompts(engine)[-2:]
    assert SUMMARY in behind
    assert last.startswith(behind)
