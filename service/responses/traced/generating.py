"""An engine whose generations are spans: what each was asked with, how soon it began to answer, what came of it.

The engine's server learns of the span, so that its own are below it. As in a response's usage, the prompt of a
generation that only goes on with what an earlier one began counts once.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic

import msgspec

from service.engine.port import Chunk, Generation
from service.metrics.counters import Mode
from service.responses.output.machine import Machine
from service.responses.plan import Plan
from service.responses.traced.facts import asked
from service.spans import Fact, Kind, Span

Generate = Callable[[Generation], AsyncGenerator[Chunk, None]]


class Generating:
    """The generations of one response, as parts of its `span`."""

    def __init__(self, generate: Generate, span: Span, plan: Plan, machine: Machine, mode: Mode) -> None:
        """`generate` is the engine's, and `machine` takes what is sampled."""
        self._generate = generate
        self._span = span
        self._plan = plan
        self._machine = machine
        self._mode: Mode = mode

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """What the engine samples. Raises EngineError."""
        answered, cached, finish = False, None, None
        machine, stretches = self._machine, self._machine.stretches
        items, sampled, reasoning = len(machine.output), stretches.sampled, stretches.reasoning
        read = len(generation.prompt) if stretches.begins else None
        facts = asked(self._plan, generation, self._mode)
        with self._span.child(f"chat {self._plan.base.model}", Kind.CLIENT, facts) as span:
            began = monotonic()
            if span.shows and not generation.begun:
                span.show_input(self._plan.items, self._plan.base.instructions)
            generation = msgspec.structs.replace(generation, trace=span.headers)
            try:
                async with aclosing(self._generate(generation)) as chunks:
                    async for chunk in chunks:
                        if not answered and chunk.tokens:
                            answered = True
                            span.note({"gen_ai.response.time_to_first_chunk": monotonic() - began})
                        cached = chunk.cached_tokens if chunk.cached_tokens is not None else cached
                        finish = chunk.finish
                        yield chunk
            finally:
                used: dict[str, Fact] = {
                    "gen_ai.usage.input_tokens": read,
                    "gen_ai.usage.output_tokens": stretches.sampled - sampled,
                    "gen_ai.usage.cache_read.input_tokens": None if read is None else cached,
                    "gen_ai.usage.reasoning.output_tokens": stretches.reasoning - reasoning,
                    "gen_ai.response.finish_reasons": None if finish is None else [finish.value],
                }
                span.note(used)
                if span.shows:
                    span.show_output(msgspec.json.encode(machine.output[items:]))
