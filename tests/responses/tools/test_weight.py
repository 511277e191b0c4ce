"""How much there is in an answer of a server, counted before anything parses it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.tools.transports import Weight, values_in

MOST = 20
JSON: Any = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a,[{"\\\n\r\u20ac', max_size=40),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(alphabet='a,"', max_size=3), inner, max_size=8),
    max_leaves=40,
)


def marks_of(value: Any) -> int:
    """How many braces, brackets and commas there are in the JSON of a value, its texts apart."""
    if isinstance(value, dict):
        return 1 + max(len(value) - 1, 0) + sum(map(marks_of, value.values()))
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(map(marks_of, value))
    return 0


def refused(parts: list[bytes], events: int | None) -> bool:
    """Whether an answer in these parts is refused."""
    weight = Weight(MOST, events)
    return any(weight.refusal(part) for part in parts) or weight.refusal_at_end() is not None


@given(JSON, st.booleans())
def test_what_stands_in_texts_does_not_count(value: Any, pretty: bool) -> None:
    text = json.dumps(value, indent=1 if pretty else None, ensure_ascii=False).encode()

    assert values_in(text, 1_000) == marks_of(value)


@given(JSON, st.integers(1, 30), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_an_answer_is_refused_by_its_values_however_it_comes(value: Any, size: int, events: bool, end: str) -> None:
    body = json.dumps(value).encode()
    if events:
        body = f": hello{end}{end}data: {body.decode()}{end}{end}".encode()
    parts = [body[start : start + size] for start in range(0, len(body), size)]

    assert refused(parts, 3 if events else None) == (marks_of(value) > MOST)


def test_events_are_counted_one_by_one_and_all_together() -> None:
    event = b"data: " + json.dumps([1] * (MOST - 1)).encode() + b"\n\n"

    assert not refused([event] * 50, 50)
    assert refused([event] * 51, 50)


@pytest.mark.parametrize(
    "text",
    [
        b': a quote "\ndata: ' + b"{}," * 30 + b"\n\n",
        b': a quote "\rdata: ' + b"{}," * 30 + b"\n\n",
        b"data: [\ndata: " + b"{}," * 30 + b"\ndata: ]\n\n",
        b"data: [\r\n" + b"data: {},\r\n" * 30 + b"data: ]\r\n\r\n",
        b'data: "' + b'","' * 30,
        b"data: [" + b'"",' * 30,
    ],
)
def test_nothing_makes_values_look_like_text(text: bytes) -> None:
    for size in (1, 7, len(text)):
        assert refused([text[start : start + size] for start in range(0, len(text), size)], 100)
