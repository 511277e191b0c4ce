"""One response: the engine's tokens through the machine to events. Knows nothing of HTTP or Redis.

    begin ─▶ sample ─▶ end ─▶ keep ─▶ terminal

A `Sampler` is the second step alone, for whoever does the others in ways of its own; a `Run` is all of them.
`keep` is what the caller passes in to store the turn. It is awaited before the terminal event is handed over, so that
whoever has seen `response.completed` can continue from it. If it fails, the terminal event is `response.failed` and
still carries the output: the answer isn't lost, and nobody is misled. `release` lets go of what was held for the run,
and is awaited in the end whatever happened.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from service.api.events import Event
from service.api.response import Response, ResponseError, ResponseStatus
from service.engine.port import Engine, EngineError, Generation
from service.logs import event
from service.responses.output.machine import Ending, Machine
from service.responses.sampler import Sampler, error_of
from store.errors import StoreError

logger = logging.getLogger(__name__)

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
        self._sampler = Sampler(engine, generation, machine, seconds=seconds)
        self._machine = machine
        self._keep = keep
        self._release = release
        self._seconds = seconds
        self._clock = clock
        self.unstored: StoreError | None = None
        """Why the turn could not be stored, once that is so."""

    def stop(self, ending: Ending = Ending.ABORT) -> None:
        """End the response now: the engine's work is aborted, and what was said so far is kept. Never blocks."""
        self._sampler.stop(ending)

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self._sampler.stopped is Ending.TIMEOUT

    @property
    def failure(self) -> EngineError | None:
        """What the engine failed with, once it has."""
        return self._sampler.failure

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """The response's events in batches as they come, the terminal one last and after the turn was kept."""
        machine, sampler = self._machine, self._sampler
        try:
            yield machine.begin()
            async with aclosing(sampler.steps()) as steps:
                async for step in steps:
                    if step.events:
                        yield step.events
            if batch := machine.end(sampler.ending):
                yield batch
            response = machine.result(
                sampler.ending,
                now=int(self._clock()),
                error=error_of(sampler.ending, sampler.failure, self._seconds),
            )
            yield machine.terminal(await self._kept(response))
        finally:
            await self._release()
        if sampler.interrupted:
            raise asyncio.CancelledError

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
