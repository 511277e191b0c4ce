"""The prompt: what of a request outlives it, and what it is refused for."""

from typing import Any

import pytest

from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode
from tests.support.responses.requests import prompt

Json = dict[str, Any]


CALLING = message("{}", "assistant", channel="commentary", recipient="functions.lookup", call_id="call_1")
ANSWER = message("42", "assistant", channel="final")
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "5"}


# --- what belongs to this request alone ---


def test_instructions_are_never_inherited() -> None:
    first = prompt(input="Hi", instructions="Answer in rhyme.")

    assert "rhyme" in decode(first.tokens)
    assert "rhyme" not in decode(prompt(first.messages, input="Go on.").tokens)


def test_a_developer_item_belongs_to_the_chain() -> None:
    first = prompt(input=[{"role": "developer", "content": "Answer in rhyme."}, {"role": "user", "content": "Hi"}])

    assert "rhyme" in decode(prompt(first.messages, input="Go on.").tokens)


# --- what is refused ---


def refusal(*args: Any, **kwargs: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        prompt(*args, **kwargs)
    return caught.value


def test_an_output_without_its_call_is_refused_by_its_call_id() -> None:
    error = refusal(input=[OUTPUT])

    assert (error.status, error.param, error.code) == (400, "input", None)
    assert "call_1" in error.message
    assert "input[0]" in error.message


def test_a_call_left_without_output_is_refused_by_its_call_id() -> None:
    error = refusal([CALLING], input="What now?")

    assert error.param == "input"
    assert "No tool output found for function call call_1" in error.message


@pytest.mark.parametrize("empty", [[], None])
def test_a_conversation_without_any_item_is_refused(empty: object) -> None:
    error = refusal(input=empty, previous_response_id="resp_0")

    assert (error.param, error.code) == ("input", "invalid_value")


def test_nothing_new_on_top_of_a_chain_is_allowed() -> None:
    assert prompt([ANSWER], input=[], previous_response_id="resp_0").messages == []


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    tokens = len(prompt(input="Hi").tokens)

    error = refusal(limit=tokens, input="Hi")

    assert len(prompt(limit=tokens + 1, input="Hi").tokens) == tokens
    assert (error.code, error.param) == ("context_length_exceeded", "input")
    assert str(tokens) in error.message


def test_a_text_beyond_the_context_is_refused_before_it_is_all_encoded() -> None:
    error = refusal(input="a few words, " * 500_000)

    assert error.code == "context_length_exceeded"
    assert "more than 131072 tokens" in error.message
