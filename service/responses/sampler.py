"""Samples one response: feeds the engine's tokens to its machine. Never ends the machine or stores anything."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

import msgspec

from service.api.approval import ApprovalRequest
from service.api.events import Event
from service.api.outcome import HostedCall, Outcome, died, failed, used_up
from service.api.response import ResponseError
from service.engine.port import Chunk, Engine, EngineError, EngineRefused, Generation, TokenLogprobs
from service.logs import event
from service.markup.chat import Piece
from service.responses.output.machine import Ending, Machine
from service.responses.output.next_step import Call, End, Generated, GiveFeedback, Next, Render, next_step
from service.responses.output.reading import TemplatedReading
from service.responses.templated import later_prompt
from service.tools.port import Runner
from store.errors import StoreUnavailable
from store.history.approvals import Use

logger = logging.getLogger(__name__)

CACHED_TOKENS_SECONDS = 0.25
"""For how long a generation that is broken off may take to tell how much of its prompt was cached."""


class Step(msgspec.Struct, frozen=True):
    """The result of one chunk, or of a call: the sampled ids or the outcome, and their events, which may be none.

    One that is `due` has to be kept, with all before it, before the next one: a tool is called then. `piece` is the
    text of a model that doesn't speak Harmony, or notes that its template made a prompt.
    """

    tokens: list[int]
    events: list[Event]
    logprobs: list[TokenLogprobs] | None = None
    outcome: Outcome | None = None
    due: bool = False
    piece: Piece | None = None


UseUp = Callable[[ApprovalRequest], Awaitable[Use]]
"""Uses the approval of a call up for one run; whether that was possible. Raises StoreUnavailable."""

BeginCall = Callable[[bool], Awaitable[Use]]
"""Asked before a call that may have an effect, where a run can be taken over that nobody has a log of: NEW where it is
to be made, BEGUN where an earlier run may have made it, GONE where another run goes on in the place of this one. True
for a call of which an approval says whether it was begun. Raises StoreUnavailable."""


class Sampler:
    """Samples a response into a machine that has begun. Iterate `steps` once; `ending` says how it went.

    `initial` is the request to the engine at the response's beginning; the engine is asked from where the machine
    stands, as often as `next_step` says. It never ends the machine: a response may go on elsewhere. `tools` run the
    calls that aren't the caller's to run; `use_up` and `begin_call` make sure that each is made once.
    """

    def __init__(
        self,
        engine: Engine,
        initial: Generation,
        machine: Machine,
        tools: Runner | None = None,
        *,
        use_up: UseUp | None = None,
        begin_call: BeginCall | None = None,
        seconds: float,
        generate: Callable[[Generation], AsyncGenerator[Chunk, None]] | None = None,
    ) -> None:
        """`generate` stands for the engine's own where something is between the two."""
        self._engine = engine
        self._generate = generate or engine.generate
        self._tools = tools
        self._use_up = use_up
        self._begin_call = begin_call
        self._initial = initial
        self._machine = machine
        self._seconds = seconds
        self._waiting: asyncio.Task[object] | None = None
        """The task that waits for the engine, or for a tool, at this moment."""
        self._asked = 0
        """How many generations the engine was asked for."""
        self._next: Next = End(Ending.ERROR)
        self.stopped: Ending | None = None
        """The ending with which it was stopped, if it was."""
        self.interrupted = False
        """Whether that was because its task was cancelled, which is then the caller's to raise again."""
        self.ending = Ending.ERROR
        """How the generation ended, once it has."""
        self.failure: EngineError | None = None
        """The error of the engine, once it failed."""

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the generation now: the engine's work is aborted, and the tokens sampled so far stay. Never blocks."""
        if self.stopped is None:
            self.stopped = ending
            if self._waiting is not None:
                self._waiting.cancel()

    def steer(self) -> None:
        """End the generation at the next boundary, at once where it stands at one. Never blocks."""
        self._machine.steer()
        if (boundary := self._machine.boundary) is not None:
            self.stop(boundary)

    async def steps(self) -> AsyncGenerator[Step, None]:
        """The steps of the sampling, as made. Close it to abort; an EngineError is kept as `failure`, not raised."""
        machine = self._machine
        timer = asyncio.get_running_loop().call_later(self._seconds, self.stop, Ending.TIMEOUT)
        try:
            self._next = next_step(machine, self._initial)
            while not isinstance(self._next, End):
                if isinstance(self._next, GiveFeedback):
                    machine.give_feedback()
                    self._next = next_step(machine, self._initial)
                elif self.stopped is not None:
                    self._next = End(self.stopped)
                elif isinstance(self._next, Render):
                    piece = await self._rendered(self._next.reading)
                    if piece is not None:
                        yield Step([], [], piece=piece)
                    self._next = next_step(machine, self._initial)
                elif isinstance(self._next, Call):
                    yield Step([], [], due=True)
                    outcome = await self._outcome()
                    if outcome is not None:
                        yield Step([], machine.take_outcome(outcome), outcome=outcome)
                        self._next = next_step(machine, self._initial)
                else:
                    async with aclosing(self._generated(self._numbered(self._next.generation))) as steps:
                        async for step in steps:
                            yield step
            self.ending = self._next.ending
        except EngineError as failure:
            self._note(failure)
        finally:
            timer.cancel()

    async def _rendered(self, reading: TemplatedReading) -> Piece | None:
        """Have the template make the prompt; the piece to keep of it, if nobody made it before. Raises EngineError."""
        self._waiting = asyncio.current_task()
        try:
            prompt = await later_prompt(self._engine, self._initial, reading)
        except asyncio.CancelledError:
            self._cancelled()
            return None
        finally:
            self._waiting = None
        thinking = reading.chat.thinks(prompt.ids)
        first = reading.prompted(len(prompt.ids), thinking, prompt)
        return Piece(0, "", len(prompt.ids), thinking) if first else None

    async def _outcome(self) -> Outcome | None:
        """The outcome of the call that the machine waits for; None where it was stopped. A call that may have been made
        already is made again only where that does no harm.
        """
        call = self._machine.pending
        if call is None or self._tools is None:
            raise RuntimeError("nobody runs the tools of this response")
        if self.stopped is not None:
            return None
        self._waiting = asyncio.current_task()
        try:
            return await self._called(call, self._tools)
        except asyncio.CancelledError:
            self._cancelled()
            return None
        finally:
            self._waiting = None

    async def _called(self, call: HostedCall, tools: Runner) -> Outcome | None:
        begun, approved = call.begun, call.approved
        try:
            if self._begin_call is not None and not call.tool.repeatable:
                use = await self._begin_call(approved is not None)
                if use is Use.GONE:
                    self.stop()
                    return None
                begun = begun or use is Use.BEGUN
            if approved is not None:
                if self._use_up is None:
                    raise RuntimeError("nobody uses the approvals of this response up")
                use = await self._use_up(approved)
                if use in (Use.GONE, Use.UNKNOWN):
                    return used_up()
                begun = use is Use.BEGUN  # nobody makes it before that
        except StoreUnavailable as error:
            what = "It could not be noted that it begins" if approved is None else "The approval could not be used up"
            return failed(f"{what}: {error}. The call was not made.")
        return died() if begun and not call.tool.repeatable else await tools.call(call)

    def _numbered(self, generation: Generation) -> Generation:
        """The generation under an id of its own, as an engine may still be busy with the one before."""
        number, self._asked = self._asked, self._asked + 1
        return msgspec.structs.replace(generation, id=f"{generation.id}-{number}", begun=True) if number else generation

    async def _generated(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """One generation, up to where it is broken off or ends. `_next` is then the next step."""
        machine, stretches, chunks = self._machine, self._machine.stretches, self._generate(generation)
        start = before = stretches.sampled
        begins = stretches.begins  # the prompt of any later one is cached because that of the first was read
        try:
            while self.stopped is None:
                self._waiting = asyncio.current_task()
                try:
                    chunk = await anext(chunks)
                except StopAsyncIteration:
                    break
                except asyncio.CancelledError:
                    self._cancelled()
                    break
                finally:
                    self._waiting = None
                if chunk.prompt_tokens is not None and isinstance(stretches, TemplatedReading):
                    stretches.prompted(chunk.prompt_tokens, thinking=False)
                    yield Step([], [], piece=Piece(0, "", chunk.prompt_tokens))
                if chunk.cached_tokens is not None and begins:
                    stretches.note_cached(chunk.cached_tokens)
                events = machine.feed(chunk.tokens, chunk.logprobs, chunk.text)
                taken, before = stretches.sampled - before, stretches.sampled
                finish = chunk.finish if taken == len(chunk.tokens) else None
                if taken:
                    piece = Piece(taken, chunk.text) if isinstance(stretches, TemplatedReading) else None
                    yield Step(chunk.tokens[:taken], events, chunk.logprobs and chunk.logprobs[:taken], piece=piece)
                step = next_step(machine, self._initial, Generated(generation, before > start, finish))
                if step is not None:
                    if finish is None and begins:
                        await self._wait_for_cached_tokens(generation, chunks)
                    self._next = step
                    return
            self._next = End(self.stopped or Ending.ERROR)
        finally:
            await chunks.aclose()

    async def _wait_for_cached_tokens(self, generation: Generation, chunks: AsyncGenerator[Chunk, None]) -> None:
        """Learn how much of the prompt was cached, which some engines tell in the end alone."""
        self._waiting = asyncio.current_task()
        try:
            with suppress(TimeoutError, EngineError):
                async with asyncio.timeout(CACHED_TOKENS_SECONDS):
                    if self._machine.stretches.unknown and await self._engine.finish(generation.id):
                        async for chunk in chunks:
                            if chunk.cached_tokens is not None:
                                self._machine.stretches.note_cached(chunk.cached_tokens)
        except asyncio.CancelledError:
            self._cancelled()
        finally:
            self._waiting = None

    def _cancelled(self) -> None:
        """A cancelled task is a stop too: the process is going down, and the tokens sampled until then are kept."""
        if self.stopped is None:
            self.stopped = Ending.ABORT
            self.interrupted = True
        if self._waiting is not None:
            self._waiting.uncancel()

    def _note(self, failure: EngineError) -> None:
        """Keep a failure, and log it; not the words of a refusal, which may quote the request."""
        self.failure = failure
        if isinstance(failure, EngineRefused):
            event(logger, logging.WARNING, "the engine refused a request", response_id=self._initial.id)
        else:
            event(logger, logging.ERROR, "the engine failed", response_id=self._initial.id, reason=str(failure))


def error_of(ending: Ending, failure: EngineError | None, seconds: float) -> ResponseError | None:
    """The response's error for an ending that fails: `failure` is the engine's, `seconds` how long it might take."""
    if ending is Ending.TIMEOUT:
        return ResponseError("server_error", f"The response took longer than {seconds:g} s. Ask for less output.")
    if ending is Ending.ERROR:
        if isinstance(failure, EngineRefused):
            return ResponseError("server_error", f"The engine refused the request: {failure}")
        reason = str(failure) if failure else "it stopped before the answer was complete"
        return ResponseError("server_error", f"The engine failed: {reason}")
    return None
