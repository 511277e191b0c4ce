"""DemoEngine: the engine port around a mind that samples without a model.

The mind is a plain generator of token ids; this file cuts it into chunks, counts, paces, and stops it. It
must never look at the tokens' meaning, and never run for long without giving other tasks a turn.

It counts what a prefix cache would have had, as vLLM does: whole blocks from the beginning, never the last token of a
prompt, and nothing of another salt. Nothing is computed, so nothing is saved; kept are hashes, not tokens.
"""

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress

from service.engine.port import Between, Chunk, EngineUnavailable, Finish, Generation, ModelCard, Take, TokenLogprobs
from service.features.demo.sampling import sampled_answer
from service.harmony.tokens import byte_table

CHUNK_TOKENS = 64
"""The most ids in one chunk, so that a consumer's work on one chunk stays short too."""

LIKELIHOODS = 16
"""How many different probabilities tokens have."""

OTHERS, OTHERS_APART = 50_000, 4_567
"""Which ids stand as alternatives of others: ordinary ones, far from each other."""

CHUNKS_PER_SECOND = 1000
"""The most chunks a paced stream sends a second; a faster stream puts more tokens into each."""

BLOCK_TOKENS = 16
"""The size of vLLM's blocks."""

MOST_BLOCKS = 65_536
"""The blocks that are remembered: a million tokens, in 10 MB at most."""

TOKENS_AT_ONCE = 32_768
"""How much of a prompt is looked up before others have a turn: under a millisecond."""


class DemoEngine:
    """A deterministic stand-in for gpt-oss, which says that it is one.

    `model` is what it claims to serve. `tokens_per_second` is the pace of one stream; 0 streams as fast as it
    goes. Raises ValueError for a pace that is negative or not finite.
    """

    def __init__(self, model: ModelCard, tokens_per_second: float = 0) -> None:
        if not (math.isfinite(tokens_per_second) and tokens_per_second >= 0):
            raise ValueError(f"tokens_per_second must be 0 or more, not {tokens_per_second}")
        self._model = model
        self._pace = tokens_per_second
        self._prefixes = Prefixes()
        self._closed = asyncio.Event()

    @property
    def model(self) -> ModelCard:
        """The model card given at construction."""
        return self._model

    async def start(self) -> None:
        """Read the vocabulary now (0.02 s), so that the first request doesn't wait for it."""
        byte_table()
        self._closed.clear()

    async def check(self) -> None:
        """Return unless the engine was closed. Raises EngineUnavailable."""
        if self._closed.is_set():
            raise EngineUnavailable("the demo engine is closed")

    def servers(self) -> Mapping[str, bool]:
        """Itself alone."""
        return {"demo": not self._closed.is_set()}

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """Sample the answer to the prompt; see the port. Raises EngineUnavailable after `close`."""
        await self.check()
        sampling, begun, sent = generation.sampling, asyncio.get_running_loop().time(), 0
        pieces = sampled_answer(generation.prompt, sampling.structural_tag, sampling.stop_ids, sampling.min_tokens)
        prefix = Prefix(self._prefixes, generation.cache_salt)
        for start in range(0, len(generation.prompt), TOKENS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            prefix.add(generation.prompt[start : start + TOKENS_AT_ONCE])
        cached: int | None = prefix.cached
        ids: list[int] = []
        finish: Finish | None = None
        while finish is None:
            size = min(await self._tick(begun, sent), sampling.max_tokens - sent)
            while len(ids) < size and (piece := next(pieces, None)) is not None:
                ids += piece
                if not piece:
                    await asyncio.sleep(0)
            said, ids = ids[:size], ids[size:]
            sent += len(said)
            if self._closed.is_set():
                said, finish = [], Finish.ABORT
            elif said and said[-1] in sampling.stop_ids:
                finish = Finish.STOP
            elif sent == sampling.max_tokens:
                finish = Finish.LENGTH
            probable = sampling.logprobs
            logprobs = None if probable is None else [likelihood(id, probable) for id in said]
            prefix.add(said)
            if not take(Chunk(said, finish, cached, logprobs)) and not await between():
                return
            cached = None

    async def finish(self, id: str) -> bool:
        """Nothing can end early here: every chunk is complete."""
        return False

    async def close(self) -> None:
        """Refuse new work and abort what is running, at once even where it waits for its next tick."""
        self._closed.set()

    async def _tick(self, begun: float, sent: int) -> int:
        """Give others a turn, then say how many ids are due where `sent` were sent since `begun`.

        Deadlines count from the start, so a late tick delays none after it: what is overdue comes at once.
        """
        if not self._pace:
            await asyncio.sleep(0)
            return CHUNK_TOKENS
        least = math.ceil(self._pace / CHUNKS_PER_SECOND)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(begun + (sent + least) / self._pace):
                await self._closed.wait()
        due = int((asyncio.get_running_loop().time() - begun) * self._pace) - sent
        return min(max(due, least), CHUNK_TOKENS)


def likelihood(id: int, alternatives: int) -> TokenLogprobs:
    """The made-up probability of a token, from ids alone, as the demo engine leaves nothing to chance.

    The token has between 0.5 and 0.98; what is left is halved again and again among others, which are no marks.
    """
    likely = 0.98 - 0.03 * (id % LIKELIHOODS)
    others = ((id + OTHERS_APART * number) % OTHERS for number in range(1, alternatives))
    top = [(id, math.log(likely))]
    top += [(other, math.log((1 - likely) / 2**number)) for number, other in enumerate(others, 1)]
    return TokenLogprobs(top[0][1], tuple(top[:alternatives]))


class Prefixes:
    """The blocks that were seen last, each with all that was before it."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most = most_blocks
        self._seen: OrderedDict[int, None] = OrderedDict()

    def note(self, block: int) -> bool:
        """Remember a block; whether it was known."""
        known = block in self._seen
        self._seen[block] = None
        self._seen.move_to_end(block)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return known


class Prefix:
    """The tokens of one generation, as they come: its prompt, then the sampled ones."""

    def __init__(self, prefixes: Prefixes, salt: str | None) -> None:
        self._prefixes = prefixes
        self._last = hash(salt)
        self._begun: array[int] = array("I")
        self._tokens = self._blocks_known = 0
        self._all_known = True

    @property
    def cached(self) -> int:
        """The number of cached tokens of the prompt, if only the prompt came so far."""
        return min(self._blocks_known, max(self._tokens - 1, 0) // BLOCK_TOKENS) * BLOCK_TOKENS

    def add(self, ids: Sequence[int]) -> None:
        """Go on with `ids`, TOKENS_AT_ONCE at most."""
        self._begun.extend(ids)
        self._tokens += len(ids)
        end = len(self._begun) // BLOCK_TOKENS * BLOCK_TOKENS
        for start in range(0, end, BLOCK_TOKENS):
            self._last = hash((self._last, self._begun[start : start + BLOCK_TOKENS].tobytes()))
            self._all_known = self._prefixes.note(self._last) and self._all_known
            self._blocks_known += self._all_known
        del self._begun[:end]
