"""ScriptedEngine: an engine that plays a script, faults and all. It is the mock at the engine's port.

Tests of everything above the port use it: a script says which ids are sampled and where the engine stalls,
dies, or ends without a finish. Where a script says nothing else it keeps the port's promises (it stops at
stop ids and counts `max_tokens`), so it passes the conformance suite. It must never be configured in a
running service.

A script may be written as one generation, and be played as several: who breaks off behind a message's header, to ask
again with a constraint of its content, or asks for more behind a stop id, hears the rest of the same script.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from service.engine.port import (
    Chunk,
    EngineError,
    EngineUnavailable,
    Finish,
    Generation,
    ModelCard,
    TokenLogprobs,
)
from service.harmony.tokens import MESSAGE
from tests.support.engine.generating import GeneratingEngine

REMEMBERED = 256
"""How many of the latest generations may be gone on with."""


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


class ScriptedEngine(GeneratingEngine):
    """An engine that plays `scripts`, the first for the first call and so on; the last one repeats.

    A script is a list of steps, or a function that makes one from the generation. A call whose prompt is an earlier
    one's and what that played, up to the end of a header or the stop id at its end, goes on with the earlier script as
    long as that has more. `generations` are the calls so far; `aborted` has the loop's time at which each generation
    was closed early, by its id. A structural tag is left to the script; log probabilities are made
    up. Set `unready` to make `check` raise it.
    """

    def __init__(self, model: ModelCard, *scripts: ScriptSource) -> None:
        if not scripts:
            raise ValueError("an engine without a script has nothing to play")
        self._model = model
        self._scripts = scripts
        self._begun = 0
        self._takes: deque[_Take] = deque(maxlen=REMEMBERED)
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

    def servers(self) -> Mapping[str, bool]:
        return {"scripted": not self._closing.is_set() and self.unready is None}

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Play the next script, or the rest of one.

        Raises what the script dies of, and EngineUnavailable after `close`.
        """
        if self._closing.is_set():
            raise EngineUnavailable("the scripted engine is closed")
        self.generations.append(generation)
        take = self._take(generation)
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

    async def finish(self, id: str) -> bool:
        """There is nothing to be heard but what was said."""
        return False

    async def close(self) -> None:
        """Refuse new work; what is running ends with an abort, a stall too."""
        self._closing.set()

    def _take(self, generation: Generation) -> "_Take":
        """What to play for a call: the rest of an earlier one's script, or the next script."""
        rests = (take.rest_for(generation) for take in reversed(self._takes))
        steps: Iterable[Step] | None = next((steps for steps in rests if steps is not None), None)
        if steps is None:
            self._begun += 1
            source = self._scripts[min(self._begun, len(self._scripts)) - 1]
            steps = source(generation) if callable(source) else source
        take = _Take(generation, steps)
        self._takes.append(take)
        return take

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
                take.over = True
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
    """One playing of a script: the steps to come, the room left, and how it ended.

    `over` is an end that nobody goes on from: the engine died, or somebody else plays the rest.
    """

    def __init__(self, generation: Generation, steps: Iterable[Step]) -> None:
        """`steps` are taken one by one, when they are due: a script may make them up as it goes."""
        self._generation = generation
        self._steps = iter(steps)
        self._taken: list[Step] = []
        self._room = generation.sampling.max_tokens
        self._stops = frozenset(generation.sampling.stop_ids)
        self._played: list[int] = []
        self.finish: Finish | None = None
        self.over = False

    def next_step(self) -> Step:
        """The next step; at the end of the script, a stop."""
        self._taken.append(next(self._steps, FinishWith(Finish.STOP)))
        return self._taken[-1]

    def sample(self, ids: Sequence[int]) -> Chunk:
        """A chunk of `ids`, cut after the first stop id and where `max_tokens` is reached."""
        stop = next((place for place, token in enumerate(ids, 1) if token in self._stops), None)
        if stop is not None and stop <= self._room:
            self.finish = Finish.STOP
        elif len(ids) >= self._room:
            self.finish = Finish.LENGTH
        tokens = list(ids[: self._room if stop is None else min(stop, self._room)])
        self._room -= len(tokens)
        self._played += tokens
        return Chunk(tokens, self.finish, logprobs=self._logprobs(tokens))

    def end(self, finish: Finish, cached_tokens: int | None = None) -> Chunk:
        self.finish = finish
        return Chunk([], finish, cached_tokens, self._logprobs([]))

    def rest_for(self, asked: Generation) -> Iterable[Step] | None:
        """The steps that are left for a call that goes on from here; None where it doesn't, or none is left.

        It goes on where this broke off behind a header, for the constraint of its content, or behind a stop id.
        """
        before = len(self._generation.prompt)
        heard = len(asked.prompt) - before
        if self.over or not 0 < heard <= len(self._played):
            return None
        broken_off = asked.prompt[-1] == MESSAGE and asked.sampling.structural_tag is not None
        stopped = self.finish is Finish.STOP and heard == len(self._played) and asked.prompt[-1] in self._stops
        known = [*self._generation.prompt, *self._played[:heard]]
        if not (broken_off or stopped) or list(asked.prompt) != known:
            return None
        self.over = True
        rest = chain(_behind(self._taken, heard), self._steps)
        first = next(rest, None)
        return None if first is None else chain([first], rest)

    def _logprobs(self, ids: Sequence[int]) -> list[TokenLogprobs] | None:
        """Each id is likely, those beside it less and less so."""
        asked = self._generation.sampling.logprobs
        if asked is None:
            return None
        return [TokenLogprobs(-0.25, tuple((id ^ n, -0.25 - n) for n in range(asked))) for id in ids]


def _behind(steps: Sequence[Step], ids: int) -> Iterator[Step]:
    """What a script has behind so many ids."""
    for step in steps:
        if ids and isinstance(step, Sequence):
            rest = step[ids:]
            ids -= len(step) - len(rest)
            if rest:
                yield rest
        elif not ids:
            yield step
