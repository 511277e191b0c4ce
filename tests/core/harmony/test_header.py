"""Headers that are malformed: the best is made of them without losing a word. Others are in test_segments.py."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.harmony.header import Header, cut_short, read_header
from service.harmony.segments import MAX_HEADER_TOKENS
from service.harmony.tokens import encode
from tests.support.responses import samples
from tests.support.responses.samples import harmony

Read = tuple[str | None, str | None, str | None]


def marked(text: str, *, role_given: bool = True) -> Header:
    header, content = read_header(harmony(text), role_given=role_given, marked=True)
    assert content == ""
    return header


def said(header: Header) -> Read:
    return header.channel, header.recipient, header.content_type


# --- malformed ---

MALFORMED: dict[str, Read] = {
    "": (None, None, None),
    " to=functions.f": (None, "functions.f", None),
    "assistantassistant<|channel|>final": ("final", None, None),
    "assistantanalysis": ("analysis", None, None),
    "<|channel|>final<|channel|>final": ("final", None, None),
    "<|channel|>thoughts": ("thoughts", None, None),
    "<|channel|>finaljson": ("final", None, "json"),
    "<|channel|>commentary to=<|constrain|>json": ("commentary", None, "<|constrain|>json"),
    "<|channel|>commentaryto=functions.f": ("commentary", "functions.f", None),
    "<|channel|>functions.f": ("commentary", "functions.f", None),
    " to=functions.f<|channel|>commentary to=functions.g": ("commentary", "functions.g", None),
    "<|channel|>commentary to=functions.f json and more": ("commentary", "functions.f", "json"),
    "<|channel|>final<|return|>": ("final", None, None),
}


@pytest.mark.parametrize(("text", "expected"), MALFORMED.items(), ids=MALFORMED)
def test_a_malformed_header_is_read_as_far_as_it_goes(text: str, expected: Read) -> None:
    header = marked(text)

    assert said(header) == expected
    assert not header.clean


def test_a_role_that_is_not_the_assistants_is_told() -> None:
    header = marked("developer<|channel|>final", role_given=False)

    assert (header.role, header.clean) == ("developer", False)


# --- without the mark that ends it ---


@pytest.mark.parametrize(
    ("text", "expected", "content"),
    [
        ("Hi there", (None, None, None), "Hi there"),
        ("<|channel|>analysis The user", ("analysis", None, None), " The user"),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json{}",
            ("commentary", "functions.f", "<|constrain|>json"),
            "{}",
        ),
        ("assistant<|channel|>final 42", ("final", None, None), " 42"),
    ],
)
def test_what_is_no_header_is_content(text: str, expected: Read, content: str) -> None:
    header, rest = read_header(harmony(text), role_given=True, marked=False)

    assert (said(header), rest) == (expected, content)
    assert not header.clean


@pytest.mark.parametrize("text", ["<|channel|>comment", "<|channel|>commentary to", "<|channel|>final ", " to="])
def test_the_first_letters_of_a_header_are_no_content(text: str) -> None:
    ids = harmony(text)
    _, content = read_header(ids, role_given=True, marked=False)

    assert cut_short(ids, content)


# --- any ---


@given(ids=samples.wild.map(lambda ids: [token for token in ids if 0 <= token <= 201087]), given=st.booleans())
def test_any_header_can_be_read(ids: list[int], given: bool) -> None:
    for is_marked in (True, False):
        header, _ = read_header(ids, role_given=given, marked=is_marked)
        assert header.channel != ""
        assert header.recipient != ""


@pytest.mark.parametrize("text", [" " * 128, "to=" + "a" * 100, "assistant ", "json to="])
def test_the_longest_header_is_read_at_once(text: str) -> None:
    ids = (encode(text) * MAX_HEADER_TOKENS)[:MAX_HEADER_TOKENS]
    began = time.thread_time()
    for is_marked in (True, False):
        read_header(ids, role_given=True, marked=is_marked)

    assert time.thread_time() - began < 0.1
