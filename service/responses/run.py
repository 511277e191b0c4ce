"""One response from its plan to its end: the engine's tokens through the machine to events, and a turn.

    begin ─▶ sample ─▶ end ─▶ sink.finish ─▶ terminal

In the foreground and in the background it is the same; only the sink differs. It stores the turn before the terminal
event is handed over, so that a client that has seen `response.completed` can continue from it. Knows nothing of HTTP or
Redis.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from time import monotonic
from typing import Protocol, TypeVar

import msgspec

from service import spans
from service.api.approval import ApprovalRequest
from service.api.events import Event, Terminal
from service.api.response import Response, ResponseError, ResponseStatus
from service.backoff import Backoff
from service.engine.port import Engine, EngineError
from service.logs import event
from service.metrics.counters import Metrics, Mode, Pace
from service.responses.conversation_hold import ConversationHold
from service.responses.output.emitter import Seal
from service.responses.output.machine import Ending, Machine
from service.responses.output.usage import Cached
from service.responses.parent import Parent
from service.responses.plan import Plan, expense_of, turn_of
from service.responses.prepare import Prepared
from service.responses.sampler import BeginCall, Sampler, Step, UseUp, error_of
from service.responses.seal import seal_for
from service.responses.service import Service
from service.responses.traced import Calling, Generate, Generating, ended, planned
from service.tenants.limiter import spent_in
from service.tenants.tally import Tally
from service.tools.port import Runner
from service.tools.toolbox import ToolRun, decode_connections
from store.errors import ConversationMoved, ConversationNotFound, StoreError, StoreUnavailable, StoreUnconfirmed
from store.history.approvals import Approvals, Use
from store.history.history import ConversationHistoryStore
from store.limits import Spent, Unspent
from store.turn import Turn

T = TypeVar("T")

logger = logging.getLogger(__name__)

APPEND_BACKOFF = Backoff(first=0.1, most=1.0)
"""The pauses in seconds between tries to store it. Each try has the store's own time limit."""


class Sink(Protocol):
    """Where a run's events and its turn are kept."""

    def begin(self, *, snapshot: Callable[[], Response], stop: Callable[[], None]) -> None:
        """Sampling begins. `snapshot` gives the response as it stands, and `stop` ends it where no more can be kept."""
        ...

    async def write(self, step: Step, cached: Cached) -> None:
        """Keep the step of a chunk, and how much of the prompt was cached, where that is known.

        Waits while there is no room, so that nothing is sampled that can't be kept.
        """
        ...

    async def settle(self) -> None:
        """Return once all that was written is kept, or nothing more can be, as `stop` was then told: a tool is called
        next, and nobody must forget it.
        """
        ...

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn of a response that has ended; its terminal events, which may say that it wasn't stored."""
        ...


class AppendSink:
    """The sink of a response in the foreground: its turn is stored in one piece, at the end."""

    def __init__(
        self,
        store: ConversationHistoryStore,
        tenant: str,
        parent: Parent,
        *,
        streamed: bool,
        patience: float,
        joining: ConversationHold | None = None,
        tally: Tally | None = None,
    ) -> None:
        """`streamed` is whether the caller learns the response's id even where it fails without output; `patience` for
        how many seconds the end waits for a store that is away; `joining` the conversation that the response is added
        to, unless it fails. The `tally` counts what is spent on one that isn't stored.
        """
        self._store = store
        self._tenant = tenant
        self._parent = parent
        self._streamed = streamed
        self._patience = patience
        self._joining = joining
        self._tally = tally
        self.unstored: StoreError | None = None
        """Why the turn could not be stored, once that is so."""

    def begin(self, *, snapshot: Callable[[], Response], stop: Callable[[], None]) -> None:
        """Nothing is kept before the end."""

    async def write(self, step: Step, cached: Cached) -> None:
        """Nothing is kept before the end."""

    async def settle(self) -> None:
        """Nothing is kept before the end."""

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn, where that is wanted. If it can't be, the response fails and still carries its output."""
        failed = response.status is ResponseStatus.FAILED
        unheard = failed and not response.output and not self._streamed
        stored = plan.stored and not unheard
        if stored or machine.asked:
            span = spans.current.get().child("store.append")
            try:
                if machine.asked and not failed:
                    await again_while_away(lambda: ask(self._store, self._tenant, plan, machine), self._patience)
                if stored:
                    turn = turn_of(plan, machine, response)
                    await again_while_away(lambda: self._store_turn(turn, joins=not failed), self._patience)
                    self._parent.released()
            except StoreUnconfirmed as lack:  # a GET shows it as it is, so nobody is told otherwise
                self._parent.released()
                response = unconfirmed(response, lack)
            except StoreError as error:
                self.unstored = error
                event(logger, logging.ERROR, "response not stored", response_id=response.id, reason=str(error))
                response = _not_stored(response, error)
                span.fail(spans.kind_of(error))
            finally:
                span.end()
        if not stored or self.unstored is not None:
            await self._count(plan, response, answered=not unheard)
        if self._joining is not None:
            await self._joining.let_go()  # before anybody hears of the end, and sends what comes next
        return machine.terminal(response)

    async def _count(self, plan: Plan, response: Response, *, answered: bool) -> None:
        """Count the usage of a response that isn't stored, unless it came to nothing but an error."""
        expense = expense_of(plan, response)
        if self._tally is not None and expense is not None and (answered or expense.output_tokens):
            await self._tally.count(self._tenant, plan.id, expense)

    async def _store_turn(self, turn: Turn, *, joins: bool) -> None:
        """Store the turn, in its conversation if it has one that is still there and the turn `joins` it."""
        if joins and self._joining is not None:
            try:
                await self._joining.add(turn)
                return
            except ConversationNotFound:
                event(logger, logging.INFO, "its conversation was deleted meanwhile", response_id=turn.id)
        await self._store.append(self._tenant, turn, pin=self._parent.pin)


async def again_while_away(work: Callable[[], Awaitable[T]], patience: float) -> T:
    """Do `work`, which is safe to repeat, again while the store is away. Raises its errors."""
    clock = asyncio.get_running_loop().time
    deadline, failures = clock() + patience, 0
    while True:
        try:
            return await work()
        except StoreUnavailable:
            failures += 1
            pause = APPEND_BACKOFF.seconds(failures)
            if clock() + pause > deadline:
                raise
        await asyncio.sleep(pause)


async def ask(store: ConversationHistoryStore, tenant: str, plan: Plan, machine: Machine) -> None:
    """Note the approvals for which a response asks, so that each can be used once. Raises StoreUnavailable."""
    asked = {each.place.place: each.digest for each in machine.asked if each.place is not None}
    await Approvals(store).ask(tenant, plan.id, asked)


def unconfirmed(response: Response, lack: StoreUnconfirmed) -> Response:
    """A response that is stored, and says that it isn't as safe as it should be; so does the log."""
    event(logger, logging.ERROR, "response not as safe as it should be", response_id=response.id, reason=str(lack))
    return msgspec.structs.replace(response, durability="unconfirmed")


def _not_stored(response: Response, error: StoreError) -> Response:
    reason = "The response could not be stored in time, so it may not be there to be continued."
    if isinstance(error, ConversationMoved):
        reason = "Another response was added to the conversation meanwhile, so this one was not stored."
    return msgspec.structs.replace(
        response,
        status=ResponseStatus.FAILED,
        completed_at=None,
        incomplete_details=None,
        error=ResponseError(
            "server_error",
            f"{reason} Its output is complete.",
        ),
    )


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


async def foreground(
    service: Service,
    tenant: str,
    planned: Prepared,
    mode: Mode,
    *,
    since: float,
    samples: bool = True,
    remade: bool = False,
    begin_call: BeginCall | None = None,
) -> tuple[Run, AppendSink]:
    """The run of a plan in this process, and where it is kept. `since` and what follows it are as for Run.

    Raises StoreUnavailable, also where the response is to be stored and the store is known to be away.
    """
    plan = planned.plan
    await storable(service, plan)
    sink = AppendSink(
        service.store,
        tenant,
        planned.parent,
        streamed=mode == "stream",
        patience=service.settings.store_patience_seconds,
        joining=planned.joining,
        tally=service.tally,
    )
    run = Run(
        plan,
        machine_of(plan, await seal_for(service.seals, tenant, plan.rules)),
        sink,
        service.engine,
        service.metrics,
        mode=mode,
        since=since,
        seconds=service.settings.request_seconds,
        clock=service.clock,
        tools=await tools_of(service, tenant, plan),
        use_up=use_up_for(service, tenant, plan, service.store.token()),
        begin_call=begin_call,
        samples=samples,
        remade=remade,
    )
    return run, sink


async def tools_of(service: Service, tenant: str, plan: Plan) -> ToolRun | None:
    """The runner of the tool calls of a plan's response; None where the service runs none. Raises StoreUnavailable."""
    if not plan.rules.hosts:
        return None
    if not plan.connections:
        return service.toolbox.run(tenant)
    _, connections = (await service.seals.of(tenant)).open(plan.connections)
    return service.toolbox.run(tenant, decode_connections(connections))


def use_up_for(service: Service, tenant: str, plan: Plan, run: str) -> UseUp | None:
    """The function that uses up the approvals with which a plan's response begins, for the run of this name; None where
    there are none.
    """
    if plan.rules.answers is None:
        return None

    async def use_up(request: ApprovalRequest) -> Use:
        place = request.place
        if place is None:
            return Use.UNKNOWN
        response, number = place.response_id, place.place
        return await again_while_away(
            lambda: service.approvals.use_up(tenant, response, number, request.digest, by=plan.id, run=run),
            service.settings.store_patience_seconds,
        )

    return use_up


async def storable(service: Service, plan: Plan) -> None:
    """Raises StoreUnavailable where the response is to be stored, and the store known to be away or not safe enough;
    and DiskFull where it took none the last time.
    """
    store = service.store
    if plan.stored and (store.full or store.server.health.away is not None):
        await store.prove(plan.id)
