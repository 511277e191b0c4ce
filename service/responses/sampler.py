"""What is sampled of one response: the engine's tokens, into its machine."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from itertools import count

import msgspec

from service.api.events import Event
from service.api.response import ResponseError
from service.engine.port import Chunk, Engine, EngineError, EngineRefused, Finish, Generation, TokenLogprobs
from service.harmony import tokens
from service.logs import event
from service.responses.course import asked, ended
from service.responses.output.machine import Ending, Machine
from service.responses.output.usage import Cached

logger = logging.getLogger(__name__)

_ENDINGS = {Finish.STOP: Ending.STOP, Finish.LENGTH: Ending.LENGTH, Finish.ABORT: Ending.ABORT}


LAST_WORD_SECONDS = 0.25
"""For how long a generation that is broken off may take to say how much of its prompt was cached."""


class Step(msgspec.Struct, frozen=True):
    """What came of one chunk: the sampled ids, and the events that they made, which may be none."""

    tokens: list[int]
    events: list[Event]
    logprobs: list[TokenLogprobs] | None = None


class Sampler:
    """What is sampled of a response, into a machine that has begun. Iterate `steps` once; `ending` says how it went.

    `whole` is what the engine would be asked at the response's beginning; it is asked from where the machine stands,
    and as often as its course takes (course.py). It never ends the machine: a response may go on elsewhere.
    """

    def __init__(self, engine: Engine, whole: Generation, machine: Machine, *, seconds: float) -> None:
        self._engine = engine
        self._whole = whole
        self._machine = machine
        self._seconds = seconds
        self._waiting: asyncio.Task[object] | None = None
        """The task that waits for the engine at this moment."""
        self.stopped: Ending | None = None
        """What it was stopped with, if it was."""
        self.interrupted = False
        """Whether that was because its task was cancelled, which is then the caller's to do as told."""
        self.ending = Ending.ERROR
        """How the generation ended, once it has."""
        self.failure: EngineError | None = None
        """What the engine failed with, once it has."""
        self._further = False

    @property
    def cached_tokens(self) -> Cached:
        """How much of the prompt the engine's prefix cache held, once it says so."""
        return self._machine.cached_tokens

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the generation now: the engine's work is aborted, and what was sampled so far stays. Never blocks."""
        if self.stopped is None:
            self.stopped = ending
            if self._waiting is not None:
                self._waiting.cancel()

    async def steps(self) -> AsyncGenerator[Step, None]:
        """What is sampled, as it comes. Close it to abort; an EngineError is kept as `failure`, and not raised."""
        timer = asyncio.get_running_loop().call_later(self._seconds, self.stop, Ending.TIMEOUT)
        try:
            for number in count():
                over = ended(self._machine, self._whole.sampling.max_tokens)
                if over is not None or self.stopped is not None:
                    self.ending = self.stopped or over or Ending.ERROR
                    return
                self._further = False
                async with aclosing(self._generated(asked(self._whole, self._machine, number))) as steps:
                    async for step in steps:
                        yield step
                if not self._further:
                    return
        except EngineError as failure:
            self._note(failure)
        finally:
            timer.cancel()

    async def _generated(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """One generation. `_further` says whether another one is to follow, and else `ending` how it all ended."""
        machine, chunks = self._machine, self._engine.generate(generation)
        before = machine.sampled
        begins = machine.stretches.begins  # the prompt of any later one is cached because that of the first was read
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
                if chunk.cached_tokens is not None and begins:
                    machine.note_cached(chunk.cached_tokens)
                events = machine.feed(chunk.tokens, chunk.logprobs)
                whole = machine.taken == len(chunk.tokens)
                if chunk.tokens:
                    logprobs = chunk.logprobs and chunk.logprobs[: machine.taken]
                    yield Step(chunk.tokens[: machine.taken], events, logprobs)
                further = machine.sampled > before
                finish = chunk.finish if whole else None
                if finish is None and begins and machine.breaks_off:
                    await self._hear_the_last_word(generation, chunks)
                if not self._goes_on(generation, finish, further=further):
                    return
            self.ending = self.stopped or Ending.ERROR
        finally:
            await chunks.aclose()

    async def _hear_the_last_word(self, generation: Generation, chunks: AsyncGenerator[Chunk, None]) -> None:
        """Learn how much of the prompt was cached, which some engines say in the end alone."""
        self._waiting = asyncio.current_task()
        try:
            with suppress(TimeoutError, EngineError):
                async with asyncio.timeout(LAST_WORD_SECONDS):
                    if self._machine.stretches.unknown and await self._engine.finish(generation.id):
                        async for chunk in chunks:
                            if chunk.cached_tokens is not None:
                                self._machine.note_cached(chunk.cached_tokens)
        except asyncio.CancelledError:
            self._cancelled()
        finally:
            self._waiting = None

    def _goes_on(self, generation: Generation, finish: Finish | None, *, further: bool) -> bool:
        """Whether there is more to come of this generation, after a chunk that had this finish.

        Only one that got the response further is followed by another one, so no engine is asked again and again.
        """
        machine = self._machine
        if machine.owed is not None:
            machine.tell()
            self._further = True
        elif machine.held is not None and further:
            self._further = True
        elif machine.full:
            self.ending = machine.over or Ending.STOP
        elif finish is None:
            return True
        elif finish is Finish.STOP and further and machine.calls and tokens.CALL in generation.sampling.stop_ids:
            self._further = True  # it could only stop at this call, and another one may follow
        else:
            self.ending = _ENDINGS[finish]
        return False

    def _cancelled(self) -> None:
        """A cancelled task is a stop too: the process is going down, and what was said is worth keeping until then."""
        if self.stopped is None:
            self.stopped = Ending.ABORT
            self.interrupted = True
        if self._waiting is not None:
            self._waiting.uncancel()

    def _note(self, failure: EngineError) -> None:
        """Keep a failure, and log it; not the words of a refusal, which may quote the request."""
        self.failure = failure
        if isinstance(failure, EngineRefused):
            event(logger, logging.WARNING, "the engine refused a request", response_id=self._whole.id)
        else:
            event(logger, logging.ERROR, "the engine failed", response_id=self._whole.id, reason=str(failure))


def error_of(ending: Ending, failure: EngineError | None, seconds: float) -> ResponseError | None:
    """What the response says of an ending that fails: `failure` is the engine's, `seconds` how long it might take."""
    if ending is Ending.TIMEOUT:
        return ResponseError("server_error", f"The response took longer than {seconds:g} s. Ask for less output.")
    if ending is Ending.ERROR:
        if isinstance(failure, EngineRefused):
            return ResponseError("server_error", f"The engine refused the request: {failure}")
        reason = str(failure) if failure else "the engine stopped without a word"
        return ResponseError("server_error", f"The engine failed: {reason}")
    return None
