"""One response: the engine's tokens through the machine to events. Knows nothing of HTTP or Redis.

    begin ─▶ sample ─▶ end ─▶ keep ─▶ terminal

`keep` is what the caller passes in to store the turn. It is awaited before the terminal event is handed over, so that
whoever has seen `response.completed` can continue from it. If it fails, the terminal event is `response.failed` and
still carries the output: the answer isn't lost, and nobody is misled. `release` lets go of what was held for the run,
and is awaited in the end whatever happened.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from service.engine.port import Chunk, Engine, EngineError, EngineRefused, Finish, Generation
from service.logs import event
from service.protocol.events import Event
from service.protocol.machine import Ending, Machine
from service.protocol.response import Response, ResponseError, ResponseStatus
from store.errors import StoreError

logger = logging.getLogger(__name__)

_ENDINGS = {Finish.STOP: Ending.STOP, Finish.LENGTH: Ending.LENGTH, Finish.ABORT: Ending.ABORT}

Keep = Callable[[Response], Awaitable[None]]
Release = Callable[[], Awaitable[None]]
Clock = Callable[[], float]


class Run:
    """One generation from its first event to its terminal one. Iterate `events` once."""

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        machine: Machine,
        keep: Keep,
        release: Release,
        *,
        seconds: float,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._generation = generation
        self._machine = machine
        self._keep = keep
        self._release = release
        self._seconds = seconds
        self._clock = clock
        self._sampler: asyncio.Task[object] | None = None
        """The task that waits for the engine at this moment."""
        self._stopped: Ending | None = None
        self._interrupted = False
        self._cached_tokens = 0
        self.failure: EngineError | None = None
        """What the engine failed with, once it has."""
        self.unstored: StoreError | None = None
        """Why the turn could not be stored, once that is so."""

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the response now: the engine's work is aborted, and what was said so far is kept. Never blocks."""
        if self._stopped is None:
            self._stopped = ending
            if self._sampler is not None:
                self._sampler.cancel()

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self._stopped is Ending.TIMEOUT

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The response's events in batches as they come, the terminal one last and after the turn was kept."""
        machine = self._machine
        try:
            yield machine.begin()
            ending = Ending.ERROR
            timer = asyncio.get_running_loop().call_later(self._seconds, self.stop, Ending.TIMEOUT)
            chunks = self._engine.generate(self._generation)
            try:
                while (chunk := await self._next(chunks)) is not None:
                    if chunk.cached_tokens is not None:
                        self._cached_tokens = chunk.cached_tokens
                    batch = machine.feed(chunk.tokens)
                    if batch:
                        yield batch
                    if machine.full:
                        ending = Ending.STOP
                        break
                    if chunk.finish is not None:
                        ending = _ENDINGS[chunk.finish]
                        break
                else:
                    ending = self._stopped or Ending.ERROR
            except EngineError as failure:
                self._note(failure)
            finally:
                timer.cancel()
                await chunks.aclose()
            if batch := machine.end(ending):
                yield batch
            response = machine.result(
                ending, now=int(self._clock()), cached_tokens=self._cached_tokens, error=self._error(ending)
            )
            yield machine.terminal(await self._kept(response))
        finally:
            await self._release()
        if self._interrupted:
            raise asyncio.CancelledError

    def _note(self, failure: EngineError) -> None:
        """Keep a failure, and log it; not the words of a refusal, which may quote the request."""
        self.failure = failure
        if isinstance(failure, EngineRefused):
            event(logger, logging.WARNING, "the engine refused a request", response_id=self._generation.id)
        else:
            event(logger, logging.ERROR, "the engine failed", response_id=self._generation.id, reason=str(failure))

    async def _next(self, chunks: AsyncGenerator[Chunk, None]) -> Chunk | None:
        """The engine's next chunk, or None once it has none or the run was stopped.

        A cancelled task is a stop too: the process is going down, and what was said is worth keeping until then.
        """
        if self._stopped is not None:
            return None
        sampler = self._sampler = asyncio.current_task()
        try:
            return await anext(chunks, None)
        except asyncio.CancelledError:
            if self._stopped is None:
                self._stopped = Ending.ABORT
                self._interrupted = True
            if sampler is not None:
                sampler.uncancel()
            return None
        finally:
            self._sampler = None

    def _error(self, ending: Ending) -> ResponseError | None:
        if ending is Ending.TIMEOUT:
            return ResponseError(
                "server_error", f"The response took longer than {self._seconds:g} s. Ask for less output."
            )
        if ending is Ending.ERROR:
            if isinstance(self.failure, EngineRefused):
                return ResponseError("server_error", f"The engine refused the request: {self.failure}")
            reason = str(self.failure) if self.failure else "the engine stopped without a word"
            return ResponseError("server_error", f"The engine failed: {reason}")
        return None

    async def _kept(self, response: Response) -> Response:
        """Keep the turn; the response to show in the end."""
        try:
            await self._keep(response)
        except StoreError as error:
            self.unstored = error
            event(logger, logging.ERROR, "response not stored", response_id=response.id, reason=str(error))
            return _not_stored(response)
        return response


def _not_stored(response: Response) -> Response:
    return msgspec.structs.replace(
        response,
        status=ResponseStatus.FAILED,
        completed_at=None,
        incomplete_details=None,
        error=ResponseError(
            "server_error",
            "The response could not be stored, so it can't be continued. Its output is complete.",
        ),
    )
