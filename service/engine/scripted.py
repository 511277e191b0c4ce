"""ScriptedEngine: an engine that plays a script, faults and all. It is the mock at the engine's port.

Tests of everything above the port use it: a script says which ids are sampled and where the engine stalls,
dies, or ends without a finish. Where a script says nothing else it keeps the port's promises (it stops at
stop ids and counts `max_tokens`), so it passes the conformance suite. It must never be configured in a
running service.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from service.engine.port import Chunk, EngineError, EngineRefused, EngineUnavailable, Finish, Generation, ModelCard
from service.protocol.tokens import STOPS


@dataclass(frozen=True)
class Stall:
    """Sample nothing until the event is set; without one, until the generation is aborted."""

    until: asyncio.Event | None = None


@dataclass(frozen=True)
class Die:
    """Raise this error in the middle of the generation, or, as a first step, before it."""

    error: EngineError


@dataclass(frozen=True)
class EndWithoutFinish:
    """End the stream without a finish, as an engine does that lost its connection."""


@dataclass(frozen=True)
class FinishWith:
    """End with this finish, whatever was sampled, and say how much of the prompt was cached."""

    finish: Finish
    cached_tokens: int | None = None


Step: TypeAlias = Sequence[int] | Stall | Die | EndWithoutFinish | FinishWith
"""Ids make one chunk; they may be any ids, malformed Harmony too."""

Script: TypeAlias = Sequence[Step]
"""What one generation does, step by step. One that runs out finishes with STOP."""

ScriptSource: TypeAlias = Script | Callable[[Generation], Script]


class ScriptedEngine:
    """An engine that plays `scripts`, the first for the first call and so on; the last one repeats.

    A script is a list of steps, or a function that makes one from the generation. `generations` are the calls
    so far; `aborted` has the loop's time at which each generation was closed early, by its id. Set `unready`
    to make `check` raise it.
    """

    def __init__(self, model: ModelCard, *scripts: ScriptSource) -> None:
        if not scripts:
            raise ValueError("an engine without a script has nothing to play")
        self._model = model
        self._scripts = scripts
        self._running = 0
        self._closing = asyncio.Event()
        self.generations: list[Generation] = []
        self.aborted: dict[str, float] = {}
        self.unready: EngineUnavailable | None = None

    @property
    def model(self) -> ModelCard:
        """The model card given at construction."""
        return self._model

    @property
    def running(self) -> int:
        """How many generations are under way."""
        return self._running

    async def start(self) -> None:
        """Open, also after `close`."""
        self._closing.clear()

    async def check(self) -> None:
        """Return unless closed or `unready`. Raises EngineUnavailable."""
        if self._closing.is_set():
            raise EngineUnavailable("the scripted engine is closed")
        if self.unready:
            raise self.unready

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Play the next script. Raises what the script dies of, and EngineUnavailable after `close`."""
        if self._closing.is_set():
            raise EngineUnavailable("the scripted engine is closed")
        if generation.sampling.structural_tag is not None:
            raise EngineRefused("a script can't be constrained by a structural tag")
        self.generations.append(generation)
        source = self._scripts[min(len(self.generations), len(self._scripts)) - 1]
        take = _Take(generation, source(generation) if callable(source) else source)
        self._running += 1
        try:
            while take.finish is None and not take.over:
                chunk = await self._next(take)
                if chunk:
                    yield chunk
        except (GeneratorExit, asyncio.CancelledError):
            if take.finish is None:
                self.aborted[generation.id] = asyncio.get_running_loop().time()
            raise
        finally:
            self._running -= 1

    async def close(self) -> None:
        """Refuse new work; what is running ends with an abort, a stall too."""
        self._closing.set()

    async def _next(self, take: "_Take") -> Chunk | None:
        """Play one step; None is a step without a chunk."""
        await asyncio.sleep(0)
        step = take.next_step()
        if isinstance(step, Stall):
            await self._stall(step)
        if self._closing.is_set():
            return take.end(Finish.ABORT)
        match step:
            case Stall():
                return None
            case Die(error):
                raise error
            case EndWithoutFinish():
                take.over = True
                return None
            case FinishWith(finish, cached_tokens):
                return take.end(finish, cached_tokens)
            case _:
                return take.sample(step)

    async def _stall(self, stall: Stall) -> None:
        """Wait for the script's event or for `close`, whichever comes first."""
        events = [self._closing, *([stall.until] if stall.until else [])]
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class _Take:
    """One playing of a script: the steps to come, the room left, and how it ended."""

    def __init__(self, generation: Generation, script: Script) -> None:
        self._steps = iter(script)
        self._room = generation.sampling.max_tokens
        self._stops = frozenset(STOPS + generation.sampling.stop_ids)
        self.finish: Finish | None = None
        self.over = False

    def next_step(self) -> Step:
        """The next step; at the end of the script, a stop."""
        return next(self._steps, FinishWith(Finish.STOP))

    def sample(self, ids: Sequence[int]) -> Chunk:
        """A chunk of `ids`, cut after the first stop id and where `max_tokens` is reached."""
        stop = next((place for place, token in enumerate(ids, 1) if token in self._stops), None)
        if stop is not None and stop <= self._room:
            self.finish = Finish.STOP
        elif len(ids) >= self._room:
            self.finish = Finish.LENGTH
        tokens = list(ids[: self._room if stop is None else min(stop, self._room)])
        self._room -= len(tokens)
        return Chunk(tokens, self.finish)

    def end(self, finish: Finish, cached_tokens: int | None = None) -> Chunk:
        """The last chunk, without ids."""
        self.finish = finish
        return Chunk([], finish, cached_tokens)
