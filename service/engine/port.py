"""The engine port: prompt tokens in, sampled tokens out. Adapters live beside this file.

An engine is defined by the conformance suite in tests/engine/conformance.py, which runs against every adapter.
An adapter must never decode, parse or repair what it samples: that is the protocol's work.
"""

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Finish(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Sampling(msgspec.Struct, frozen=True):
    """How to sample. `max_tokens` counts every sampled id, the stop id included; temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    stop_ids: tuple[int, ...] = ()


class Generation(msgspec.Struct, frozen=True):
    """One request to an engine: an id for its logs, the prompt's token ids, and how to sample."""

    id: str
    prompt: Sequence[int]
    sampling: Sampling


class Chunk(msgspec.Struct, frozen=True):
    """Some sampled ids in order, as many as were ready. The stop id that ended the generation is among them.

    The last chunk has `finish`; `cached_tokens`, where the engine knows it, is how much of the prompt its prefix
    cache held, and comes at the latest with the last chunk.
    """

    tokens: list[int]
    finish: Finish | None = None
    cached_tokens: int | None = None


class ModelCard(msgspec.Struct, frozen=True):
    """What the engine serves: its id in the API, when it was made (unix seconds) and its context in tokens."""

    id: str
    created: int
    context_tokens: int


class EngineError(Exception):
    """The engine failed while it worked on a request. `status` is the HTTP status that fits."""

    status = 500


class EngineUnavailable(EngineError):
    """The engine can't be reached or is not ready; trying again later may help."""

    status = 503


class EngineOverloaded(EngineUnavailable):
    """The engine is up but takes no more work now."""


class Engine(Protocol):
    """What a run needs of an engine."""

    @property
    def model(self) -> ModelCard:
        """The model behind this engine; known once `start` has returned."""
        ...

    @property
    def running(self) -> int:
        """How many generations are under way."""
        ...

    async def start(self) -> None:
        """Make the engine ready. Raises EngineUnavailable."""
        ...

    async def check(self) -> None:
        """Return if the engine can serve now, or raise EngineUnavailable with the reason. Quick: `/ready` asks it."""
        ...

    def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Sample until a stop id, `max_tokens` or an abort; closing the generator aborts at once.

        The last chunk has a finish. A generator that ends without one has failed. Raises EngineError.
        """
        ...

    async def close(self) -> None:
        """Abort what is running and let go of all resources."""
        ...
