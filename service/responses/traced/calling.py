"""Whoever runs the calls of tools, with a span around each: which tool it was, and what kind of end it came to."""

import msgspec

from service.api.tools.outcome import HostedCall, Outcome
from service.responses.plan import Plan
from service.responses.tools.port import Runner
from service.responses.traced.facts import planned
from service.spans import Fact, Span


class Calling:
    """The calls of one response, as parts of its `span`. See Runner."""

    def __init__(self, tools: Runner, span: Span, plan: Plan) -> None:
        self._tools = tools
        self._span = span
        self._plan = plan

    async def call(self, call: HostedCall) -> Outcome:
        """See Runner."""
        name = call.tool.tool
        facts: dict[str, Fact] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "extension",
            "gen_ai.tool.call.id": call.id,
            **planned(self._plan),
        }
        with self._span.child(f"execute_tool {name}", facts=facts) as span:
            outcome = await self._tools.call(call)
            if outcome.status != "completed":
                span.fail(outcome.status)
            if span.shows:
                given = {"type": "tool_call", "call_id": call.id, "name": name, "arguments": call.arguments}
                answer = {"type": "tool_call_output", "call_id": call.id, "output": outcome.told}
                span.show_input(msgspec.json.encode([given]))
                span.show_output(msgspec.json.encode([answer]))
        return outcome

    async def aclose(self) -> None:
        """See Runner."""
        await self._tools.aclose()
