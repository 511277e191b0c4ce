"""The service and its rivals around an engine whose tokens were made beforehand: what bench/stream.py measures.

    python -m bench._prepared service|pydantic|gateway|nothing CHUNK

serves until a signal, with chunks of so many tokens. All get the same tokens from the same engine and are run by
service.serve, so that they differ in nothing but the way from the engine's port to the bytes of a stream. `pydantic`
is the least that a path with a pydantic event per token can do: openai-harmony's parser, fed and read token by
token, a model of `openai.types` for each delta, and a send for each. `gateway` also asks the parser for its state
after each token, to see where messages end, as gpt-oss's own server and vLLM's do; that takes the longer the
longer the message is. Never make a rival slower than those are.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from openai.types.responses import ResponseTextDeltaEvent
from openai_harmony import Role, StreamableParser, StreamState

from service.app import create_app
from service.commands import serve
from service.engine.demo.prose import story
from service.engine.port import MODEL_CREATED, Between, Chunk, Finish, Generation, ModelCard, Take
from service.harmony import tokens
from service.settings.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the tests' oracle is not installed

from tests.support.oracles.harmony import Oracle  # noqa: E402

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


def create_rival(ask_state: bool, size: int, settings: Settings) -> Any:
    """A rival, which does no more than stream deltas: no store, no check of the request, no lifecycle events."""
    with TemporaryDirectory() as folder:
        encoding = Oracle(Path(folder)).encoding

    async def stream(chunks: AsyncIterator[Chunk]) -> AsyncIterator[str]:
        parser = StreamableParser(encoding, Role.ASSISTANT)
        number = 0
        async for chunk in chunks:
            for token in chunk.tokens:
                parser.process(token)
                if ask_state and parser.state == StreamState.EXPECT_START:
                    break
                delta = parser.last_content_delta
                if delta and parser.current_channel == "final" and parser.current_recipient is None:
                    yield rival_event(delta, number)
                    number += 1

    return _streaming(size, stream)


def create_nothing(size: int, settings: Settings) -> Any:
    """Takes the tokens from the engine's port and sends none: what the engine and its turns of the loop cost."""

    async def stream(chunks: AsyncIterator[Chunk]) -> AsyncIterator[str]:
        async for chunk in chunks:
            if chunk.finish is not None:
                yield chunk.finish.value

    return _streaming(size, stream)


def rival_event(delta: str, number: int) -> str:
    """One text delta by pydantic."""
    event = ResponseTextDeltaEvent(
        type="response.output_text.delta",
        item_id=f"msg_{'0' * 52}",
        output_index=0,
        content_index=0,
        sequence_number=number,
        delta=delta,
        logprobs=[],
    )
    return f"event: {event.type}\ndata: {event.model_dump_json()}\n\n"


def _streaming(size: int, stream: Callable[[AsyncIterator[Chunk]], AsyncIterator[str]]) -> FastAPI:
    """An application that answers with the pieces that `stream` makes of the engine's chunks."""
    engine = PreparedEngine(size)
    app = FastAPI()

    @app.post(PATH)
    async def create(request: Request) -> StreamingResponse:
        wanted = await request.json()
        chunks = engine.chunks(wanted["max_output_tokens"])
        return StreamingResponse(stream(chunks), media_type="text/event-stream")

    return app


WAYS = {
    "service": create_service,
    "pydantic": partial(create_rival, False),
    "gateway": partial(create_rival, True),
    "nothing": create_nothing,
}

if __name__ == "__main__":
    serve.run(load_settings(), partial(WAYS[sys.argv[1]], int(sys.argv[2])))
