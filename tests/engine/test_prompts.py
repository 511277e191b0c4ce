"""Prompts as JSON: the same ids, of whatever length, and what they begin with is written once for each salt."""

import json
import time
from array import array
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from service.engine.port import EngineRefused, Generation, Sampling
from service.engine.servers.token_ids import BLOCK_IDS, block_json, prompt_json


def written(prompt: Sequence[int], salt: str | None = None) -> bytes:
    return msgspec.json.encode(prompt_json(Generation("one", prompt, Sampling(1), cache_salt=salt)))


@given(some.integers(0, 3 * BLOCK_IDS + 5), some.integers(0, 2**32 - 1), some.sampled_from(["array", "list"]))
def test_a_prompt_of_any_length_is_all_of_its_ids(length: int, first: int, kind: str) -> None:
    ids = [(first + 7919 * place) % 2**32 for place in range(length)]
    assert json.loads(written(array("I", ids) if kind == "array" else ids)) == ids


def test_what_a_prompt_begins_with_is_written_once_for_each_salt() -> None:
    block_json.cache_clear()
    prompt = array("I", range(5 * BLOCK_IDS + 100))
    written(prompt, "a")
    assert block_json.cache_info().misses == 5
    written(prompt + array("I", range(BLOCK_IDS)), "a")
    assert (block_json.cache_info().hits, block_json.cache_info().misses) == (5, 6)
    written(prompt, "b")
    assert (block_json.cache_info().hits, block_json.cache_info().misses) == (5, 11)


@pytest.mark.parametrize("length", [3, BLOCK_IDS, 2 * BLOCK_IDS + 3])
@pytest.mark.parametrize("kind", ["array", "list"])
def test_an_id_beyond_the_last_is_refused_wherever_it_is_also_where_the_prompt_is_known(length: int, kind: str) -> None:
    for place in (0, length // 2, length - 1):
        ids = array("I", range(length))
        ids[place] = 9_001
        prompt = ids if kind == "array" else list(ids)
        generation = Generation("one", prompt, Sampling(1), cache_salt="a")
        assert json.loads(bytes(prompt_json(generation, 9_001))) == list(ids)
        for _ in range(2):
            with pytest.raises(EngineRefused, match=r"^9001 is no token id; the last is 9000$"):
                prompt_json(generation, 9_000)


def test_a_large_prompt_is_written_in_no_time() -> None:
    """Measured: 2 ms for 120,000 ids that are new; the event loop waits for it."""
    begun = time.thread_time()
    assert len(written(array("I", range(60_000, 180_000)))) > 700_000
    assert time.thread_time() - begun < 0.05
