"""The lines of an input: found wherever the pieces end, and made in an order in which prompts begin alike."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.features.batches.lines import MOST_LINES, MOST_PROBLEMS, LineScanner

URL = "/v1/responses"


def line_of(name: str, **body: object) -> bytes:
    return json.dumps({"custom_id": name, "method": "POST", "url": URL, "body": {"model": "m"} | body}).encode()


def scanned(content: bytes, size: int = 1 << 20, most: int = 1 << 20) -> LineScanner:
    scanner = LineScanner(URL, most)
    for start in range(0, len(content), size):
        scanner.feed(content[start : start + size])
    scanner.finish()
    return scanner


def order_of(lines: list[bytes]) -> list[str]:
    content = b"\n".join(lines)
    return [json.loads(content[start : start + size])["custom_id"] for _, start, size, _ in scanned(content).places]


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=20),
    st.integers(1, 200),
    st.sampled_from([b"\n", b"\n\n", b"\r\n"]),
)
def test_each_line_is_found_wherever_pieces_end(texts: list[str], size: int, end: bytes) -> None:
    lines = [line_of(str(number), input=text) for number, text in enumerate(texts)]
    content = end.join(lines)
    places = scanned(content, size).places
    found = [content[start : start + length] for _, start, length, _ in places]
    assert sorted(map(json.loads, found), key=str) == sorted(map(json.loads, lines), key=str)


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    content = b"\xef\xbb\xbf" + line_of("a") + b"\r\n" + line_of("b")
    scanner = scanned(content, size=2)
    assert scanner.problems == []
    found = [content[start : start + size].rstrip() for _, start, size, _ in scanner.places]
    assert found == [line_of("a"), line_of("b")]
    assert [each.code for each in scanned(b"\xef\xbb\xbf").problems] == ["empty_file"]


def test_lines_that_begin_alike_are_made_one_after_the_other() -> None:
    made = [line_of(str(number), instructions="ab"[number % 2], input=str(number)) for number in range(6)]
    assert order_of(made) == ["0", "1", "2", "3", "4", "5"], "each begins otherwise"
    begins = [
        [{"role": "system", "content": "ab"[number % 2]}, {"role": "user", "content": str(number)}]
        for number in range(6)
    ]
    made = [line_of(str(number), input=begin) for number, begin in enumerate(begins)]
    assert order_of(made) == ["0", "2", "4", "1", "3", "5"]


def test_only_the_first_problems_are_told_and_the_rest_isn_t_read() -> None:
    scanner = scanned(b"{}\n" * 1_000)
    assert [each.line for each in scanner.problems] == [*range(1, MOST_PROBLEMS + 1)]


@pytest.mark.parametrize("size", [100, 1_000, 10_000])
def test_a_line_longer_than_a_body_may_be_ends_the_reading(size: int) -> None:
    [problem] = scanned(line_of("a", input="x" * 2_000) + b"\n{}", most=1_000, size=size).problems
    assert (problem.code, problem.line) == ("line_too_long", 1)


def test_a_line_that_is_no_text_is_told() -> None:
    problems = scanned(line_of("a") + b"\n" + line_of("b", model="?").replace(b"?", b"\xff") + b"\n\xff").problems
    assert [(each.code, each.line) for each in problems] == [("invalid_line", 2), ("invalid_line", 3)]


def test_a_batch_has_a_bounded_number_of_lines() -> None:
    content = b"\n".join(line_of(str(number)) for number in range(MOST_LINES + 2))
    [problem] = scanned(content).problems
    assert (problem.code, problem.line) == ("too_many_lines", MOST_LINES + 1)


def test_a_model_with_a_vast_name_isn_t_that_of_the_batch() -> None:
    scanner = scanned(line_of("a", model="m" * 10_000) + b"\n" + line_of("b", model="n"))
    assert (scanner.model, scanner.problems) == ("n", [])
