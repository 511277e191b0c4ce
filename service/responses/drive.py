"""Drives a run to its end: the engine and the tools on one side, an outlet for its events on the other.

    make:  begin ─▶ sample ─▶ end, finish ─▶ terminal

A token is a call, from the engine's connection through the run to the outlet. The driver's task wakes where something
has to be waited for: room in the outlet, a prompt, a tool, the next generation, the store. In the foreground and in the
background it is the same; the outlet and `finish` differ. The turn is stored before the terminal event is handed over,
so that a client that has seen `response.completed` can continue from it. Knows nothing of HTTP or Redis.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol, cast

import msgspec

from service import spans
from service.api.approving import MayCall
from service.api.citing import Cite, cite_nothing
from service.api.events import Event, Terminal
from service.api.outcome import ApprovalRequest, HostedCall, Outcome, failed_outcome, lost_outcome, used_up
from service.api.response import Response, ResponseError
from service.engine.port import Chunk, Engine, EngineError, EngineRefused, Generation, Renderer, Transcript
from service.logs import event
from service.metrics.counters import Metrics, Mode, Pace
from service.pictures import sizes_in
from service.responses.output.emitter import Seal
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import Ask, Call, End, Render
from service.responses.output.phases import Phase
from service.responses.output.reading import speaking_in
from service.responses.pictures import Pictures
from service.responses.plan import Plan
from service.responses.run import Run, Taken, error_of
from service.responses.service import Tracing
from service.tools.port import Runner
from store.errors import StoreUnavailable
from store.spent import Spent, Unspent

logger = logging.getLogger(__name__)

CACHED_TOKENS_SECONDS = 0.25
"""For how long a generation that is broken off may take to tell how much of its prompt was cached."""

UseUp = Callable[[ApprovalRequest], Awaitable[MayCall]]
"""Uses the approval of a call up for one run; whether that may make the call. Raises StoreUnavailable."""

BeginCall = Callable[[bool], Awaitable[MayCall]]
"""Asked before a call that may have an effect, where a run can be taken over that nobody has a log of: YES where it is
to be made, BEGUN where an earlier run may have made it, NO where another run goes on in the place of this one. True
for a call of which an approval says whether it was begun. Raises StoreUnavailable."""

Finish = Callable[[Plan, Machine, Response], Awaitable[list[Event]]]
"""Stores the turn of a response that has ended; its terminal events, which may say that it wasn't stored."""


class Outlet(Protocol):
    """Where the events of a run go as they come: to a client, or into a log."""

    def put(self, taken: Taken) -> bool:
        """Take these. Never blocks, and never raises; False where `room` is to be awaited before more of them."""
        ...

    async def room(self) -> None:
        """Return once there is room for more, and it is its tenant's turn."""
        ...

    async def settle(self) -> None:
        """Return once all is kept, or nothing more can be, of which the driver was told: a tool is called next, and
        nobody must forget it.
        """
        ...


def machine_of(plan: Plan, seal: Seal | None = None, cite: Cite = cite_nothing) -> Machine:
    """A machine at the beginning of a planned response. `seal` closes what `plan.rules` want sealed, and `cite` makes
    the finders of its citations.
    """
    asked_with = speaking_in(plan.rules).about or len(plan.generation.prompt)
    return Machine(plan.base, plan.rules, asked_with, seal, cite)


@dataclass(eq=False, kw_only=True)
class Driver:
    """A planned response that is made: `make` it once, or `sample` the rest of it and then `end` it."""

    plan: Plan
    machine: Machine
    """A machine of the plan, which may have replayed what was sampled elsewhere."""
    finish: Finish
    engine: Engine
    metrics: Metrics
    mode: Mode
    since: float
    """When it was asked for, by the monotonic clock."""
    seconds: float
    """How long sampling may take."""
    clock: Callable[[], float]
    tracing: Tracing | None = None
    """The spans within it, where its own is kept."""
    tools: Runner | None = None
    """Run the calls that aren't the caller's to run."""
    use_up: UseUp | None = None
    """For calls that were approved."""
    begin_call: BeginCall | None = None
    """For calls that may have an effect."""
    pictures: Pictures | None = None
    """For prompts that show some."""
    samples: bool = True
    """Whether anything is sampled; else it ends at once, without an answer."""
    remade: bool = False
    """Whether it is made for a repeated request: then it is not stored where it is aborted."""
    response: Response | None = field(default=None, init=False)
    """The response, once it has ended."""
    interrupted: bool = field(default=False, init=False)
    """Whether it was stopped because its task was cancelled."""

    def __post_init__(self) -> None:
        self.run = Run(self.plan.generation, self.machine)
        self._pace = Pace(self.since)
        self._outlet: Outlet | None = None
        self._full = False
        """Whether the outlet has to be waited for."""
        self._waiting: asyncio.Task[object] | None = None
        """The task that waits for the engine, or for a tool, at this moment."""
        self._broken_off = False
        """Whether it is a stop that cancels that task."""
        self._engine_samples = self.engine.sample
        self._span = spans.current.get()
        if self._span.kept:
            self._span.note(self.plan.facts)
            self._span.show_input(self.plan.items, whole=True)
            if (tracing := self.tracing) is not None:
                sample = self.engine.sample
                self._engine_samples = tracing.generating(sample, self._span, self.plan, self.machine, self.mode)
                self.tools = self.tools and tracing.calling(self.tools, self._span, self.plan)

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the response now: the engine's work is aborted, and its output so far is kept. Never blocks."""
        if self.run.stop(ending):
            self._break_off()

    def steer(self) -> None:
        """End the response where its next message ends, in an answer at once, so that another one goes on from it with
        what its caller has said meanwhile. Never blocks.
        """
        if self.run.steer():
            self._break_off()

    def _break_off(self) -> None:
        """Cancel the wait; within its own task, where an engine is a loop, nothing is waited for."""
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._broken_off = True
            self._waiting.cancel()

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
        return self.run.stopped is Ending.TIMEOUT

    async def make(self, outlet: Outlet) -> None:
        """Make it from its first event to its last, which comes once the turn was stored. Raises CancelledError behind
        that, where its task was cancelled.
        """
        run, self._outlet = self.run, outlet
        self._put(Taken(self.machine.begin(samples=self.samples)))
        with self._guarding():
            await self._room()
        ending, error = Ending.UNASKED, None
        if self.samples:
            await self.sample(outlet)
            ending, error = run.ending, error_of(run.ending, run.failure, self.seconds)
        if not (self.remade and run.stopped is Ending.ABORT):
            self._put(Taken(await self.end(outlet, ending, error)))
            await self._room()
        self._outlet = None  # it knows this driver: so both go now, and wait for no garbage collection
        if self.interrupted:
            raise asyncio.CancelledError

    async def sample(self, outlet: Outlet) -> None:
        """Sample the rest. `run.ending` says how that went."""
        run, self._outlet = self.run, outlet
        run.go_on()
        timer = asyncio.get_running_loop().call_later(self.seconds, self.stop, Ending.TIMEOUT)
        try:
            while not isinstance(run.next, End):
                with self._guarding():
                    await self._room()
                    self._waiting = asyncio.current_task()
                    if isinstance(run.next, Ask):
                        await self._generate()
                    elif isinstance(run.next, Render):
                        prompt = await run.next.reading.make_prompt(self._render, self.plan.generation)
                        if (taken := run.take_prompt(prompt)) is not None:
                            self._put(taken)
                    elif isinstance(run.next, Call):
                        await self._call()
        finally:
            timer.cancel()
            if self.tools is not None:
                with self._guarding():
                    await self.tools.aclose()
        if isinstance(run.failure, EngineError):
            self.metrics.engine_failed(run.failure)
        elif run.failure is None and run.ending is Ending.ERROR and self.machine.fault is None:
            failure = EngineError("it ended without a reason")
            failure.model = self.plan.generation.model
            self.metrics.engine_failed(failure)

    async def end(self, outlet: Outlet, ending: Ending, error: ResponseError | None) -> list[Event]:
        """End the response in this way, and store its turn; the terminal events. Those that close it go out before. A
        bug amid its end is its error.
        """
        self._outlet = outlet
        try:
            response = self._close(ending, error)
        except Exception as failure:
            self._note(failure)
            response = self._close(Ending.ERROR, error_of(Ending.ERROR, failure, self.seconds))
        terminal = await self.finish(self.plan, self.machine, response)
        last = terminal[-1]
        assert isinstance(last, Terminal)
        self.response = last.response
        self.metrics.ended(self.mode, self.plan.generation.model, self.response, self._pace)
        if self._span.kept:
            self._tell(self.response)
        return terminal

    def _close(self, ending: Ending, error: ResponseError | None) -> Response:
        """Close what is open; the response that is to be stored before the terminal events."""
        if self.machine.phase is not Phase.ENDED and (closing := self.machine.end(ending)):
            self._put(Taken(closing))
        return self.machine.result(ending, now=int(self.clock()), error=error)

    def _put(self, taken: Taken) -> bool:
        """Hand it on; whether there is room for more."""
        assert self._outlet is not None
        if self._pace.first is None:
            self._pace.note(taken.events)
        if not self._outlet.put(taken):
            self._full = True
        return not self._full

    async def _room(self) -> None:
        """Return once there is room for more. A stop doesn't break it off, as what was taken has yet to go out; nobody
        waits for a client once the task was cancelled.
        """
        if not self._full or self.interrupted or self._outlet is None:
            return
        self._full = False
        await self._wait_undisturbed(self._outlet.room)

    async def _wait_undisturbed(self, wait: Callable[[], Awaitable[None]]) -> None:
        waiting, self._waiting = self._waiting, None
        try:
            await wait()
        finally:
            self._waiting = waiting

    @contextmanager
    def _guarding(self) -> Generator[None]:
        """In the block a failure of the engine is the run's, and so is a bug. A cancelled task stops it: the process is
        going down, and the tokens sampled until then are kept.
        """
        try:
            yield
        except Exception as failure:
            self._note(failure)
        except asyncio.CancelledError:
            others = cast(asyncio.Task[object], asyncio.current_task()).uncancel()
            if others or not self._broken_off:  # a stop and somebody else may cancel it at the same moment
                self.run.stop()
                self.interrupted = True
            self._broken_off = False
            self.run.over()
        finally:
            self._waiting = None

    async def _render(self, transcript: Transcript, model: str) -> Sequence[int]:
        if not isinstance(self.engine, Renderer):
            raise EngineRefused(f"the engine of '{model}' knows no chat template")
        return await self.engine.render(transcript, model)

    async def _generate(self) -> None:
        """One generation, up to where it ends or is broken off. Raises EngineError."""
        generation = self.run.ask()
        messages, asks = self.machine.stretches.shown, generation.asks
        if self.pictures is None or not messages:
            await self._sample(generation)
            return
        async with self.pictures.urls(messages, self.machine.pictures) as urls:
            if asks is None:
                shown = tuple([urls.get(digest, b"") for digest, _ in sizes_in(messages)])
                generation = msgspec.structs.replace(generation, pictures=shown)
            else:
                generation = msgspec.structs.replace(generation, asks=msgspec.structs.replace(asks, pictures=urls))
            await self._sample(generation)

    async def _sample(self, generation: Generation) -> None:
        run, finishing, patience = self.run, False, asyncio.timeout(None)

        def take(chunk: Chunk) -> bool:
            taken = run.take(chunk)
            return (taken is None or self._put(taken)) and run.next is None

        async def between() -> bool:
            nonlocal finishing
            if run.next is None:
                await self._room()
                return run.next is None
            if not run.wants_cached:
                return False
            if not finishing:
                finishing = await self.engine.finish(generation.id)
                patience.reschedule(asyncio.get_running_loop().time() + CACHED_TOKENS_SECONDS)
            return finishing

        try:
            async with patience:
                await self._engine_samples(generation, take, between)
        except TimeoutError:
            if not patience.expired():
                raise
        run.over()

    async def _call(self) -> None:
        """Call the tool that the machine waits for. A call that may have been made already is made again only where
        that does no harm.
        """
        call, tools = self.machine.pending, self.tools
        if call is None or tools is None or self._outlet is None:
            raise RuntimeError("nobody runs the tools of this response")
        await self._wait_undisturbed(self._outlet.settle)
        if not isinstance(self.run.next, Call):  # it was stopped
            return
        began = monotonic()
        outcome = await self._outcome_of(call, tools)
        if outcome is not None:
            outcome = self.machine.limit_pictures(outcome)
            self.metrics.tool_called(outcome.status, monotonic() - began)
            self._put(self.run.take_outcome(outcome))

    async def _outcome_of(self, call: HostedCall, tools: Runner) -> Outcome | None:
        """The outcome of a call; None where another run goes on in the place of this one."""
        begun, approved = call.begun, call.approved
        try:
            if self.begin_call is not None and not call.tool.repeatable:
                may = await self.begin_call(approved is not None)
                if may is MayCall.NO:
                    self.stop()
                    return None
                begun = begun or may is MayCall.BEGUN
            if approved is not None:
                if self.use_up is None:
                    raise RuntimeError("nobody uses the approvals of this response up")
                may = await self.use_up(approved)
                if may is MayCall.NO:
                    return used_up()
                begun = may is MayCall.BEGUN  # nobody makes it before that
        except StoreUnavailable as error:
            what = (
                "The beginning of the call could not be stored"
                if approved is None
                else "The approval could not be used up"
            )
            return failed_outcome(f"{what}: {error}. The call was not made.")
        return lost_outcome() if begun and not call.tool.repeatable else await tools.call(call)

    def _note(self, failure: Exception) -> None:
        """Keep a failure, and log it; not the words of a refusal, which may quote the request."""
        id, counts = self.plan.generation.id, self.run.fail(failure)
        if not isinstance(failure, EngineError):
            logger.error("a response met a bug", exc_info=failure, extra={"fields": {"response_id": id}})
        elif counts and isinstance(failure, EngineRefused):
            event(logger, logging.WARNING, "the engine refused a request", response_id=id)
        elif counts:
            event(logger, logging.ERROR, "the engine failed", response_id=id, reason=str(failure))

    def _tell(self, response: Response) -> None:
        """Trace how the response has ended; of an error only its code, as its words may quote somebody."""
        self._span.note({"gen_ai.response.status": response.status.value})
        if response.error is not None:
            self._span.fail(response.error.code)
        if self._span.shows:
            self._span.show_output(msgspec.json.encode(response.output), whole=True)


def spent_in(response: Response) -> Spent:
    """The tokens that a response that has ended took."""
    usage = response.usage
    return Spent(0, 0) if usage is None else Spent(usage.input_tokens, usage.output_tokens)
