"""The spans of one response where it is traced: its generations and the tools that it calls.

They stand around the engine and the tools, whose callers know nothing of them. They are never used where a span isn't
kept. Facts have the names of OpenTelemetry's GenAI conventions but for those that these call deprecated. Source:
https://github.com/open-telemetry/semantic-conventions-genai, at 1.41.
"""

from time import monotonic

import msgspec

from service.api.outcome import HostedCall, Outcome
from service.engine.port import Between, Chunk, Generation, Sample, Take
from service.metrics.counters import Mode
from service.responses.output.machine import Machine
from service.responses.plan import Plan
from service.responses.service import Tracing
from service.spans import Fact, Span, SpanSide
from service.tools.port import Runner

PROVIDER = "harmonium"
"""The conventions have a name for each provider of models that many use, and let others have their own."""


def request_facts(plan: Plan, generation: Generation, mode: Mode) -> dict[str, Fact]:
    """The facts of one request to an engine."""
    sampling, base = generation.sampling, plan.base
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER,
        **plan.facts,
        "gen_ai.request.model": plan.base.model,
        "gen_ai.response.model": generation.model or None,
        "gen_ai.request.stream": mode == "stream",
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k or None,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty or None,
        "gen_ai.request.presence_penalty": sampling.presence_penalty or None,
        "gen_ai.request.reasoning.level": base.reasoning.get("effort") if base.reasoning else None,
        "gen_ai.output.type": "text" if base.text["format"]["type"] == "text" else "json",
    }


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
            **self._plan.facts,
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


def generating(sample: Sample, span: Span, plan: Plan, machine: Machine, mode: Mode) -> Sample:
    """An engine's `sample`, with each generation of a response as a part of its `span`."""

    async def traced(generation: Generation, take: Take, between: Between) -> None:
        answered, cached, finish = False, None, None
        stretches = machine.stretches
        items, sampled, reasoning = len(machine.output), stretches.sampled, stretches.reasoning
        read = len(generation.prompt) if stretches.begins else None
        facts = request_facts(plan, generation, mode)
        with span.child(f"chat {plan.base.model}", SpanSide.CLIENT, facts) as part:
            began = monotonic()
            if part.shows and not generation.begun:
                part.show_input(plan.items, plan.base.instructions)

            def take_and_note(chunk: Chunk) -> bool:
                nonlocal answered, cached, finish
                more = take(chunk)
                if not answered and chunk.tokens:
                    answered = True
                    part.note({"gen_ai.response.time_to_first_chunk": monotonic() - began})
                cached = chunk.cached_tokens if chunk.cached_tokens is not None else cached
                finish = chunk.finish
                return more

            try:
                await sample(msgspec.structs.replace(generation, trace=part.headers), take_and_note, between)
            finally:
                used: dict[str, Fact] = {
                    "gen_ai.usage.input_tokens": read,
                    "gen_ai.usage.output_tokens": stretches.sampled - sampled,
                    "gen_ai.usage.cache_read.input_tokens": None if read is None else cached,
                    "gen_ai.usage.reasoning.output_tokens": stretches.reasoning - reasoning,
                    "gen_ai.response.finish_reasons": None if finish is None else [finish.value],
                }
                part.note(used)
                if part.shows:
                    part.show_output(msgspec.json.encode(machine.output[items:]))

    return traced


TRACING = Tracing(generating, Calling)
