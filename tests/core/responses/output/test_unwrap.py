"""A custom tool's input comes out of the JSON that wraps it, in pieces of any size, and what isn't JSON is kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.responses.output.calls import Unwrapper

odd = st.sampled_from(
    ['"', "\\", "{", "}", "\n", "\\u", "d83d", "\\ude00", "\\ud83d", " ", '{"input":"', '"}', "🙂", "n"]
)
texts = st.lists(odd | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=8).map("".join)


def unwrapped(*pieces: str) -> str:
    unwrapper = Unwrapper()
    return "".join([*map(unwrapper.take, pieces), unwrapper.rest()])


@given(text=texts, escaped=st.booleans(), indent=st.none() | st.integers(0, 4))
def test_any_text_is_itself_again(text: str, escaped: bool, indent: int | None) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=escaped, indent=indent)

    assert unwrapped(wrapped) == text
    assert unwrapped(*wrapped) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -l", "ls -l"),
        ("{}", "{}"),
        ('{"input": 5}', '{"input": 5}'),
        ('{"inp', '{"inp'),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"input": "say "hi" now"}', 'say "hi" now'),
        ('{"input": "C:\\dir \\u12 \\x"}', "C:\\dir \\u12 \\x"),
        ('{"input": "a", "more": 1}', 'a", "more": 1}'),
        ('{"input": "cut', "cut"),
        ('{"input": "cut"', "cut"),
        ('{"input": "\\ud83d\\ude42"}', "🙂"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        ('{"input": "\\ud83d!\\ude42"}', "\ufffd!\ufffd"),
    ],
)
def test_what_is_no_such_object_loses_nothing(text: str, expected: str) -> None:
    assert unwrapped(text) == expected
    assert unwrapped(*text) == expected


def test_the_input_comes_as_soon_as_it_is_known() -> None:
    unwrapper = Unwrapper()

    assert [unwrapper.take(piece) for piece in ('{"in', 'put":', ' "a', "b\\", 'n"', " c", '"', "}")] == [
        "",
        "",
        "a",
        "b",
        "\n",
        '" c',
        "",
        "",
    ]
    assert unwrapper.rest() == ""
