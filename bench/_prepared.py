"""The service around an engine whose tokens were made beforehand: what bench/stream.py measures.

    python -m bench._prepared service|nothing CHUNK

serves until a signal, with chunks of so many tokens. `nothing` takes them and sends none. Both are run by
service.serve, so that they differ in nothing but the way from the engine's port to the bytes of a stream.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from service.app import create_app
from service.commands import serve
from service.engine.port import MODEL_CREATED, Between, Chunk, Finish, Generation, ModelCard, Take
from service.features.demo.prose import story
from service.harmony import tokens
from service.process import Settings, load_settings

MODEL = "gpt-oss-20b"
PATH = "/v1/responses"
MAX_TOKENS = 8192
PROSE_WORDS = 2000
HEADER = (tokens.CHANNEL, *tokens.encode("final"), tokens.MESSAGE)


def sampled(count: int) -> list[int]:
    """`count` tokens as a model samples them: the header of a final answer, then prose."""
    prose = tokens.encode("".join(story(PROSE_WORDS)))
    return [*HEADER, *islice(cycle(prose), count - len(HEADER))]


class PreparedEngine:
    """An engine that costs next to nothing: `size` of its tokens at each turn of the loop."""

    def __init__(self, size: int) -> None:
        self._ids = sampled(MAX_TOKENS)
        self._size = size
        self.model = ModelCard(MODEL, MODEL_CREATED, 131_072)
        self.running = 0

    async def start(self) -> None:
        """There is nothing to make ready."""

    async def check(self) -> None:
        """It can always serve."""

    def servers(self) -> Mapping[str, bool]:
        """It has none."""
        return {}

    async def finish(self, id: str) -> bool:
        """It has no more to say."""
        return False

    async def close(self) -> None:
        """There is nothing to let go of."""

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """As many of its tokens as the budget allows, and then the budget's end."""
        async for chunk in self.chunks(generation.sampling.max_tokens):
            if not take(chunk) and not await between():
                return

    async def chunks(self, budget: int) -> AsyncGenerator[Chunk, None]:
        """So many of its tokens."""
        ids = self._ids[:budget]
        for start in range(0, len(ids), self._size):
            await asyncio.sleep(0)
            finish = Finish.LENGTH if start + self._size >= len(ids) else None
            yield Chunk(ids[start : start + self._size], finish)


def create_service(size: int, settings: Settings) -> Any:
    """The service, on chunks of `size` tokens."""
    return create_app(settings, engine=PreparedEngine(size))


def create_nothing(size: int, settings: Settings) -> Starlette:
    """Takes the tokens from the engine's port and sends none: what the engine and its turns of the loop cost."""
    engine = PreparedEngine(size)

    async def create(request: Request) -> StreamingResponse:
        wanted = await request.json()

        async def stream() -> AsyncIterator[str]:
            async for chunk in engine.chunks(wanted["max_output_tokens"]):
                if chunk.finish is not None:
                    yield chunk.finish.value

        return StreamingResponse(stream(), media_type="text/event-stream")

    return Starlette(routes=[Route(PATH, create, methods=["POST"])])


WAYS = {
    "service": create_service,
    "nothing": create_nothing,
}

if __name__ == "__main__":
    serve.run(load_settings(), partial(WAYS[sys.argv[1]], int(sys.argv[2])))
