"""What an engine's prefix cache would have had: a bounded memory of the blocks of tokens that were seen lately.

Nothing is computed here, so nothing is saved; it only counts, as vLLM does: whole blocks from the beginning, never the
last token of a prompt, and nothing of another salt. Kept are hashes, not tokens.
"""

from array import array
from collections.abc import Sequence

BLOCK_TOKENS = 16
"""As vLLM has it."""

MOST_BLOCKS = 65_536
"""Blocks in each of the two halves of the memory: a million tokens, in 8 MB at most."""

TOKENS_AT_ONCE = 32_768
"""How much of a prompt is looked up before others have a turn: under a millisecond."""


class Prefixes:
    """The blocks that were seen, each with all that was before it."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most = most_blocks
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def note(self, block: int) -> bool:
        """Remember a block; whether it was known. When one half is full, it takes the place of the other."""
        known = block in self._recent or block in self._older
        self._recent.add(block)
        if len(self._recent) >= self._most:
            self._recent, self._older = set(), self._recent
        return known


class Prefix:
    """The tokens of one generation, as they come: its prompt, then what is sampled."""

    def __init__(self, prefixes: Prefixes, salt: str | None) -> None:
        self._prefixes = prefixes
        self._last = hash(salt)
        self._begun: array[int] = array("I")
        self._tokens = self._blocks_known = 0
        self._all_known = True

    @property
    def cached(self) -> int:
        """How many tokens were cached of the prompt, if that is what came so far."""
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
