"""One response from its plan to its end: the engine's tokens through the machine to events, and a turn.

    begin ─▶ sample ─▶ end ─▶ sink.finish ─▶ terminal

In the foreground and in the background it is the same; only the sink differs. It stores the turn before the terminal
event is handed over, so that a client that has seen `response.completed` can continue from it. Knows nothing of HTTP or
Redis.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import monotonic

import msgspec

from service import spans
from service.api.events import Event, Terminal
from service.api.response import Response, ResponseError
from service.engine.port import Engine, EngineError
from service.metrics.counters import Metrics, Mode, Pace
from service.responses.output.emitter import Seal
from service.responses.output.machine import Ending, Machine
from service.responses.output.reading import Cached
from service.responses.plan import Plan
from service.responses.sampler import BeginCall, Sampler, Step, UseUp, error_of
from service.responses.traced import Calling, Generate, Generating, ended, planned
from service.tenants.limits import spent_in
from service.tools.port import Runner
from store.limits import Spent, Unspent


class Sink:
    """Where a run's events and its turn are kept: nothing before the end, unless a sink does so."""

    def begin(self, *, snapshot: Callable[[], Response], stop: Callable[[], None]) -> None:
        """Sampling begins. `snapshot` gives the response as it stands, and `stop` ends it where no more can be kept."""

    async def write(self, step: Step, cached: Cached) -> None:
        """Keep the step of a chunk, and how much of the prompt was cached, where that is known.

        Waits while there is no room, so that nothing is sampled that can't be kept.
        """

    async def settle(self) -> None:
        """Return once all that was written is kept, or nothing more can be, as `stop` was then told: a tool is called
        next, and nobody must forget it.
        """

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn of a response that has ended; its terminal events, which may say that it wasn't stored."""
        raise NotImplementedError


def machine_of(plan: Plan, seal: Seal | None = None) -> Machine:
    """A machine at the beginning of a planned response. `seal` closes what `plan.rules` want sealed."""
    chat = plan.rules.chat
    asked_with = len(plan.generation.prompt) if chat is None or not chat.served else chat.about
    return Machine(plan.base, plan.rules, asked_with, seal)


class Run:
    """A planned response under way. Iterate `events` once; or its parts, `sample` and then `end`."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        sink: Sink,
        engine: Engine,
        metrics: Metrics,
        *,
        mode: Mode,
        since: float,
        seconds: float,
        clock: Callable[[], float],
        tools: Runner | None = None,
        use_up: UseUp | None = None,
        begin_call: BeginCall | None = None,
        samples: bool = True,
        remade: bool = False,
    ) -> None:
        """`machine` is one of the plan, which may have replayed what was sampled elsewhere. Sampling may take
        `seconds`; a run that never `samples` ends at once, without an answer. `tools` run the calls that aren't the
        caller's to run; `use_up` is for those that were approved, `begin_call` for those that may have an effect.

        One that is `remade` for a repeated request is not stored where it is aborted. `mode` and `since`, when it was
        asked for by the monotonic clock, are for metrics.
        """
        self.plan = plan
        self.machine = machine
        self.response: Response | None = None
        """The response, once it has ended."""
        self._sink = sink
        self._metrics = metrics
        self._mode: Mode = mode
        self._pace = Pace(since)
        self._seconds = seconds
        self._clock = clock
        self._samples = samples
        self._remade = remade
        self._tools = tools
        self._span = spans.current.get()
        generate: Generate = engine.generate
        if self._span.kept:
            self._span.note(planned(plan))
            self._span.show_input(plan.items, whole=True)
            generate = Generating(generate, self._span, plan, machine, mode).generate
            self._tools = tools if tools is None else Calling(tools, self._span, plan)
        self._sampler = Sampler(
            engine,
            plan.generation,
            machine,
            self._tools,
            use_up=use_up,
            begin_call=begin_call,
            seconds=seconds,
            generate=generate,
        )

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the response now: the engine's work is aborted, and its output so far is kept. Never blocks."""
        self._sampler.stop(ending)

    def steer(self) -> None:
        """End the response where its next message ends, in an answer at once, so that another one goes on from it with
        what its caller has said meanwhile. Never blocks.
        """
        self._sampler.steer()

    @property
    def spent(self) -> Spent | Unspent:
        """The amount that it took of its tenant's limits; unknown as long as it hasn't ended."""
        return Unspent.UNKNOWN if self.response is None else spent_in(self.response)

    @property
    def taken(self) -> tuple[int, int]:
        """The tokens of its prompts and of its output so far; none before the first that is sampled."""
        stretches = self.machine.stretches
        return (stretches.input_tokens, stretches.sampled) if stretches.sampled else (0, 0)

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self._sampler.stopped is Ending.TIMEOUT

    @property
    def ending(self) -> Ending:
        """How the generation ended, once it has."""
        return self._sampler.ending

    @property
    def failure(self) -> EngineError | None:
        """The error of the engine, once it failed."""
        return self._sampler.failure

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The response's events in batches as they come, the terminal one last and after the turn was stored."""
        yield self.machine.begin(samples=self._samples)
        if self._samples:
            async with aclosing(self.sample()) as batches:
                async for batch in batches:
                    yield batch
        if self._remade and self._sampler.stopped is Ending.ABORT:
            if self._sampler.interrupted:
                raise asyncio.CancelledError
            return
        ending = self.ending if self._samples else Ending.UNASKED
        async with aclosing(self.end(ending, self.error if self._samples else None)) as batches:
            async for batch in batches:
                yield batch
        if self._sampler.interrupted:
            raise asyncio.CancelledError

    async def sample(self) -> AsyncGenerator[list[Event], None]:
        """Sample the rest; the events as they come. `ending` says how that went."""
        self._sink.begin(snapshot=self.machine.snapshot, stop=self.stop)
        called = 0.0
        try:
            async with aclosing(self._sampler.steps()) as steps:
                async for step in steps:
                    self._pace.note(step.events)
                    await self._sink.write(step, self.machine.stretches.cached)
                    if step.due:
                        await self._sink.settle()
                        called = monotonic()
                    if step.outcome is not None:
                        self._metrics.tool_called(step.outcome.status, monotonic() - called)
                    if step.events:
                        yield step.events
        finally:
            if self._tools is not None:
                await self._tools.aclose()
        if self.failure is not None:
            self._metrics.engine_failed(self.failure)
        elif self.ending is Ending.ERROR and self.machine.fault is None:
            self._metrics.engine_failed(EngineError("it ended without a reason"))

    @property
    def error(self) -> ResponseError | None:
        """The response's error for the end of its generation, if that failed."""
        return error_of(self.ending, self.failure, self._seconds)

    async def end(self, ending: Ending, error: ResponseError | None) -> AsyncGenerator[list[Event], None]:
        """End the response in this way; the events that close it, and the terminal one once the turn is stored."""
        machine = self.machine
        if closing := machine.end(ending):
            await self._sink.write(Step([], closing), None)
            yield closing
        response = machine.result(ending, now=int(self._clock()), error=error)
        terminal = await self._sink.finish(self.plan, machine, response)
        last = terminal[-1]
        assert isinstance(last, Terminal)
        self.response = last.response
        self._metrics.ended(self._mode, self.response, self._pace)
        if self._span.kept:
            self._tell(self.response)
        yield terminal

    def _tell(self, response: Response) -> None:
        """Trace how the response has ended; of an error only its code, as its words may quote somebody."""
        self._span.note(ended(response))
        if response.error is not None:
            self._span.fail(response.error.code)
        if self._span.shows:
            self._span.show_output(msgspec.json.encode(response.output), whole=True)
