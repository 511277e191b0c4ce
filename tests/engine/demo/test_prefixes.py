"""What the demo engine counts as cached: what a prefix cache would have, and never more."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from service.engine.demo.engine import BLOCK_TOKENS, Prefix, Prefixes
from service.engine.port import Generation, ModelCard, Sampling
from service.harmony.tokens import STOPS
from tests.support.engine.hooks import complete
from tests.support.engine.prompts import prompt, user
from tests.support.engine.watched import WatchedDemo

IDS = st.lists(st.integers(0, 3), max_size=5 * BLOCK_TOKENS)


def cached(prefixes: Prefixes, ids: Sequence[int], salt: str | None = None) -> int:
    """How much of a prompt was cached."""
    prefix = Prefix(prefixes, salt)
    prefix.add(ids)
    return prefix.cached


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), IDS), max_size=5), IDS)
def test_whole_blocks_in_common_with_what_was_seen_under_the_same_salt_are_cached(
    seen: list[tuple[str | None, list[int]]], ids: list[int]
) -> None:
    prefixes = Prefixes()
    for salt, each in seen:
        cached(prefixes, each, salt)
    longest = max((common(each, ids) for salt, each in seen if salt == "a"), default=0)
    expected = min(longest, max(len(ids) - 1, 0)) // BLOCK_TOKENS * BLOCK_TOKENS
    assert cached(prefixes, ids, "a") == expected


def test_the_memory_is_bounded_and_what_was_used_last_stays() -> None:
    prefixes = Prefixes(most_blocks=8)
    kept = [1] * (2 * BLOCK_TOKENS + 1)
    for number in range(100):
        assert cached(prefixes, kept) == (2 * BLOCK_TOKENS if number else 0)
        cached(prefixes, [2, number, *range(4 * BLOCK_TOKENS)])
    assert cached(prefixes, [2, 0, *range(4 * BLOCK_TOKENS)]) == 0


async def test_the_engine_says_it_once_with_the_first_chunk() -> None:
    engine = WatchedDemo(ModelCard("m", 0, 131_072))
    asked = Generation("g", prompt(user("count to 200")), Sampling(1000, temperature=0, stop_ids=STOPS))
    first, second = [await complete(engine, asked) for _ in range(2)]
    length = (len(asked.prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert [chunk.cached_tokens for chunk in first.chunks] == [0] + [None] * (len(first.chunks) - 1)
    assert [chunk.cached_tokens for chunk in second.chunks][:2] == [length, None]
