"""Files and images in the input: what the model reads of them, and what is refused."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.content import IMAGE
from service.errors import InvalidRequest
from service.harmony.tokens import decode
from tests.support.responses.requests import Json, prompt

IMAGE_PART: Json = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "high"}


def base64(content: bytes) -> str:
    return b64encode(content).decode()


def file(content: bytes = b"Milk\nBread", **members: Any) -> Json:
    return {"type": "input_file", "filename": "list.txt", "file_data": base64(content), **members}


def said(*parts: Json, **options: Any) -> str:
    """What the model reads of a user's message."""
    made = prompt(input=[{"role": "user", "content": list(parts)}], **options)
    return decode(made.tokens).rpartition("message.user")[2].removesuffix("assistant")


def refusal(*parts: Json, **options: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        said(*parts, **options)
    return caught.value


def test_a_text_file_stands_between_two_lines_with_its_name() -> None:
    assert said(file()) == "[File: list.txt]\nMilk\nBread\n[End of file: list.txt]"


def test_a_file_and_the_words_around_it_are_on_lines_of_their_own() -> None:
    around = [{"type": "input_text", "text": text} for text in ("What's missing?", "Be brief.")]

    assert said(around[0], file(b"Milk\n"), around[1]) == (
        "What's missing?\n[File: list.txt]\nMilk\n[End of file: list.txt]\nBe brief."
    )


@pytest.mark.parametrize("kind", ["text/plain", "text/csv;charset=utf-8", ""])
def test_a_file_may_come_as_a_data_url(kind: str) -> None:
    part = file(file_data=f"data:{kind};base64,{base64(b'Milk')}")

    assert "]\nMilk\n[" in said(part)


def test_a_file_needs_no_name() -> None:
    assert said(file(b"Milk", filename=None)).startswith("[File: file]")


def test_a_file_is_listed_as_it_was_sent() -> None:
    (item,) = prompt(input=[{"role": "user", "content": [file()]}]).items

    assert getattr(item, "content", None) == [file()]


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=200))
def test_any_text_is_read_as_it_is(text: str) -> None:
    content = text.encode()
    if not content.startswith(b"%PDF-"):
        assert said(file(content)).removeprefix("[File: list.txt]\n").startswith(text)


def test_an_image_leaves_a_line_that_says_so() -> None:
    assert said({"type": "input_text", "text": "What is this?"}, IMAGE_PART) == f"What is this?\n{IMAGE}"


def test_an_image_that_a_tool_returns_leaves_a_line_too() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "call_1", "output": [IMAGE_PART]}

    assert IMAGE in decode(prompt(input=[call, answer]).tokens)


def test_images_are_refused_where_that_is_set() -> None:
    error = refusal(IMAGE_PART, refuses=True)

    assert (error.param, error.code) == ("input[0].content[0].type", "unsupported_parameter")
