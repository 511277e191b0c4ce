"""TalkingEngine: an engine that answers by itself, in a process too. It is the tests' own, so that a test of the core
needs no feature for an answer.

It counts where it is asked to ("Count to 3."), and else repeats all that users said in the prompt, cut short. It thinks
before, of the last of it. It knows no tools and no structural tags.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from service.engine.port import Chunk, EngineUnavailable, Finish, Generation, ModelCard, TokenLogprobs
from service.harmony.tokens import ASSISTANT, CHANNEL, END, MESSAGE, RETURN, START, decode, encode
from tests.support.engine.generating import GeneratingEngine

CHUNK_TOKENS = 64
BLOCK_TOKENS = 16
"""How many tokens of a prompt are cached together."""

CACHED = 16
"""How many of the latest prompts are."""

SAID_CHARS = 200
"""So much is repeated of each message."""

_COUNT = re.compile(r"[Cc]ount to ([\d,]+)")
_USER = encode("user")[0]
_AGAIN = [START, ASSISTANT, CHANNEL, *encode("final"), MESSAGE, *encode("I have no more to say."), END]


class TalkingEngine(GeneratingEngine):
    """The engine; `tokens_per_second` is its pace, and 0 is as fast as it can."""

    def __init__(self, model: ModelCard, tokens_per_second: float = 0) -> None:
        self.model = model
        self.running = 0
        self._pace = tokens_per_second
        self._closed = asyncio.Event()
        self._prompts = deque[tuple[str | None, list[int]]](maxlen=CACHED)

    async def start(self) -> None:
        self._closed.clear()

    async def check(self) -> None:
        if self._closed.is_set():
            raise EngineUnavailable("the talking engine is closed")

    def servers(self) -> Mapping[str, bool]:
        return {"talking": not self._closed.is_set()}

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        await self.check()
        sampling, loop = generation.sampling, asyncio.get_running_loop()
        begun, sent, finish, saying = loop.time(), 0, None, said(generation.prompt)
        cached = self._cached(generation)
        self.running += 1
        try:
            while finish is None:
                await self._wait(begun + sent / self._pace if self._pace else 0)
                ids: list[int] = []
                while finish is None and len(ids) < (1 if self._pace else CHUNK_TOKENS):
                    may_end = sent >= sampling.min_tokens
                    ids.append(next(id for id in saying if may_end or id not in sampling.stop_ids))
                    sent += 1
                    if ids[-1] in sampling.stop_ids:
                        finish = Finish.STOP
                    elif sent == sampling.max_tokens:
                        finish = Finish.LENGTH
                if self._closed.is_set():
                    ids, finish = [], Finish.ABORT
                top = sampling.logprobs
                likely = [TokenLogprobs(-0.25, tuple((id ^ n, -0.25 - n) for n in range(top or 0))) for id in ids]
                yield Chunk(ids, finish, cached, None if top is None else likely)
        finally:
            self.running -= 1

    def _cached(self, generation: Generation) -> int:
        """How many of the prompt's tokens are cached: whole blocks, and never the last token."""
        prompt, salt = list(generation.prompt), generation.cache_salt
        most = max((_common(prompt, known) for each, known in self._prompts if each == salt), default=0)
        self._prompts.append((salt, prompt))
        return min(most, len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS

    async def _wait(self, time: float) -> None:
        """Wait for this time of the loop, or until the engine is closed."""
        await asyncio.sleep(0)
        if time > (now := asyncio.get_running_loop().time()):
            try:
                await asyncio.wait_for(self._closed.wait(), time - now)
            except TimeoutError:
                return

    async def finish(self, id: str) -> bool:
        """Every chunk is complete, so nothing has to end early."""
        return False

    async def close(self) -> None:
        self._closed.set()


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with, in whole blocks where they differ."""
    most, size = min(len(one), len(other)), BLOCK_TOKENS
    return next((at for at in range(0, most, size) if one[at : at + size] != other[at : at + size]), most)


def said(prompt: Sequence[int]) -> Iterator[int]:
    """The answer to a prompt; where it has been begun there, the rest. Behind its end it begins again, without one."""
    ids = list(prompt)
    starts = [place for place, id in enumerate(ids[:-1]) if id == START and ids[place + 1] == _USER]
    texts = [decode(ids[place + 3 : min(_end(ids, place), place + SAID_CHARS)]) for place in starts]
    last = _end(ids, starts[-1] if starts else 0) + 3  # END START ASSISTANT
    begun, answer = ids[last:], _answer(texts)
    for number, id in enumerate(answer):
        if number >= len(begun) or begun[number] != id:
            yield id
    while True:
        yield from _AGAIN


def _end(ids: list[int], start: int) -> int:
    return ids.index(END, start) if END in ids[start:] else len(ids)


def _answer(texts: Sequence[str]) -> Iterator[int]:
    last = texts[-1] if texts else ""
    yield from (CHANNEL, *encode("analysis"), MESSAGE, *encode(f"They say: {last[:SAID_CHARS]}"), END)
    yield from (START, ASSISTANT, CHANNEL, *encode("final"), MESSAGE)
    if found := _COUNT.search(last):
        for number in range(1, int(found[1].replace(",", "")) + 1):
            yield from encode(f"\n{number}" if number > 1 else "1")
    else:
        yield from encode(f"You said: {' '.join(each[:SAID_CHARS] for each in texts)}")
    yield RETURN
