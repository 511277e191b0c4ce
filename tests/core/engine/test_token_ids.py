"""Prompts as JSON, whatever their length, each block written once for a salt; and what servers tell of their load."""

import json
import time
from array import array
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st

from service.engine.port import Finish, Generation, Sampling
from service.engine.servers.kind import ServerLoad
from service.engine.servers.token_ids import BLOCK_IDS, MAX_SAMPLES, MOST, block_json, prompt_json, read_page, total
from service.engine.vllm import servers as vllm
from tests.support.engine.standin_wire import metrics_page


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


def test_a_large_prompt_is_written_in_no_time() -> None:
    """Measured: 2 ms for 120,000 ids that are new; the event loop waits for it."""
    begun = time.thread_time()
    assert len(written(array("I", range(60_000, 180_000)))) > 700_000
    assert time.thread_time() - begun < 0.05


def test_no_number_is_below_zero_or_too_large_and_no_more_are_read_than_are_wanted() -> None:
    page = read_page(b"a -5\na 1e300\n" + b"a 1\n" * 2 * MAX_SAMPLES, ["a"])
    assert [each.value for each in page["a"][:2]] == [0, MOST]
    assert len(page["a"]) == MAX_SAMPLES
    assert total(page["a"]) == MOST


@given(st.binary(max_size=300))
def test_whatever_a_page_is_it_is_read(body: bytes) -> None:
    told = vllm.read_told(b"vllm:kv_cache_usage_perc" + body)
    assert told.running >= 0
    assert 0 <= told.used <= 1
    assert told.room >= 0


def test_each_engine_in_a_vllm_server_has_room_of_its_own() -> None:
    page = b"".join(metrics_page(3, 2, used, 1000) for used in (0.25, 0.75))
    assert vllm.read_told(page) == ServerLoad(6, 4, 0.5, 2000)


@pytest.mark.parametrize("at_once", [False, True])
def test_behind_the_finish_no_error_makes_an_answer_fail(at_once: bool) -> None:
    events = [
        b'data: {"choices":[{"token_ids":[5,6],"finish_reason":"stop"}]}\n\n',
        b'data: {"error":{"message":"no usage","code":500}}\n\n',
    ]
    answer = vllm.VllmAnswer(logprobs=None)
    chunks = [chunk for piece in ([b"".join(events)] if at_once else events) for chunk in answer.feed(piece)]
    assert [chunk.tokens for chunk in chunks] == [[5, 6]]
    assert answer.end().finish is Finish.STOP
