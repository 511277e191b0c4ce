"""What servers tell of their load, read from pages that may be anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.servers import experimental
from service.engine.servers.kind import ServerLoad
from service.engine.servers.token_ids import MAX_SAMPLES, MOST, mean, read_page, total
from service.engine.vllm import servers as vllm
from tests.support.engine.standin_wire import metrics_page


def test_samples_are_found_by_their_whole_names() -> None:
    page = read_page(b'# TYPE a gauge\na{x="1"} 2\na{x="2"} 4.5\na_b 7\nb 1\n', ["a", "c"])
    assert [(each.value, each.label("x")) for each in page["a"]] == [(2, 1), (4.5, 2)]
    assert (total(page["a"]), mean(page["a"]), page["c"], mean(page["c"])) == (6, 3.25, [], 0)


@pytest.mark.parametrize("line", [b"a", b"a{", b'a{x="1} 3', b"a NaN", b"a +Inf", b"a \xff", b"a one", b"a{} {} 3"])
def test_a_line_that_can_not_be_read_is_passed_over(line: bytes) -> None:
    assert [each.value for each in read_page(line + b"\na 3\n", ["a"])["a"]] == [3]


def test_no_number_is_below_zero_or_too_large_and_no_more_are_read_than_are_wanted() -> None:
    page = read_page(b"a -5\na 1e300\n" + b"a 1\n" * 2 * MAX_SAMPLES, ["a"])
    assert [each.value for each in page["a"][:2]] == [0, MOST]
    assert len(page["a"]) == MAX_SAMPLES
    assert total(page["a"]) == MOST


@given(st.binary(max_size=300))
def test_whatever_a_page_is_it_is_read(body: bytes) -> None:
    for told in (vllm.read_told(b"vllm:kv_cache_usage_perc" + body), experimental.read_load(body, body)):
        assert told.running >= 0
        assert 0 <= told.used <= 1
        assert told.room >= 0


def test_each_engine_in_a_vllm_server_has_room_of_its_own() -> None:
    page = b"".join(metrics_page(3, 2, used, 1000) for used in (0.25, 0.75))
    assert vllm.read_told(page) == ServerLoad(6, 4, 0.5, 2000)


def test_an_older_vllm_tells_its_blocks_once_for_all_engines() -> None:
    page = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n' * 2
    assert vllm.read_told(page).room == 1600


def test_sglang_tells_its_room_without_a_page_of_metrics() -> None:
    info = b'{"max_total_num_tokens": 4000, "internal_states": [{}]}'
    page = b'sglang:num_running_reqs{tp_rank="0"} 2.0\nsglang:num_queue_reqs 1.0\nsglang:token_usage 0.5\n'
    assert experimental.read_load(b"", info) == ServerLoad(room=4000)
    assert experimental.read_load(page, b"") == ServerLoad(2, 1, 0.5)
