"""`truncation: auto`: whole oldest turns go, and what must stay stays."""

from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode
from service.responses.prompt.build import ANSWER_RESERVE_TOKENS, RESERVE_SHARE, Prompt, drop_oldest, reserve
from store.turn import StoredMessage
from tests.support.responses.requests import Json, prompt

LONG = "word " * 700
CONTEXT = 2000


def turn(number: int, text: str = LONG) -> list[Json]:
    return [{"role": "user", "content": f"Question {number}."}, {"role": "assistant", "content": f"{number}: {text}"}]


def made(*items: Json, **options: Any) -> Prompt:
    return prompt(limit=CONTEXT, input=list(items), truncation="auto", **options)


def text_of(made: Prompt) -> str:
    return decode(made.tokens)


# --- prompts ---


def test_the_oldest_turns_go_whole_until_the_rest_fits() -> None:
    text = text_of(made(*turn(1), *turn(2), *turn(3), {"role": "user", "content": "Now?"}))

    assert "Question 1." not in text
    assert "1: word" not in text
    assert "Question 2." not in text
    assert "Question 3." in text
    assert "3: word" in text


def test_room_is_left_for_the_answer() -> None:
    shown = made(*turn(1), *turn(2), *turn(3), {"role": "user", "content": "Now?"}, max_output_tokens=400)

    assert len(shown.tokens) <= CONTEXT - 400


def test_instructions_and_a_developer_s_opening_words_stay() -> None:
    opening = {"role": "developer", "content": "Be kind."}
    text = text_of(made(opening, *turn(1), *turn(2), *turn(3), *turn(4), instructions="Be brief."))

    assert "Be kind." in text
    assert "Be brief." in text
    assert "Question 1." not in text


def test_the_newest_turn_stays_and_is_refused_if_it_alone_is_too_long() -> None:
    with pytest.raises(InvalidRequest) as caught:
        made(*turn(1), {"role": "user", "content": "word " * CONTEXT})

    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")


def test_truncation_is_disabled_unless_asked_for() -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(limit=CONTEXT, input=[*turn(1), *turn(2), *turn(3), *turn(4)])

    assert caught.value.code == "context_length_exceeded"


def test_the_reserve_is_what_may_be_answered_and_never_most_of_the_context() -> None:
    assert reserve(131_072, None) == ANSWER_RESERVE_TOKENS
    assert reserve(131_072, 500) == 500
    assert reserve(4000, 100_000) == 4000 // RESERVE_SHARE


def _turns(kinds: list[tuple[bool, int, int]]) -> list[StoredMessage]:
    """Turns of random shape: with a developer's word, so many calls with their outputs, and so many words."""
    messages: list[StoredMessage] = []
    for number, (developer, calls, words) in enumerate(kinds):
        if developer:
            messages.append(message("Mind.", "developer"))
        messages.append(message("word " * words, "user"))
        for each in range(calls):
            id = f"call_{number}_{each}"
            header = {"channel": "commentary", "recipient": "functions.f"}
            messages.append(message("{}", "assistant", call_id=id, **header))  # type: ignore[arg-type]
        for each in range(calls):
            id = f"call_{number}_{each}"
            messages.append(message("5", "tool", name="functions.f", call_id=id))
        messages.append(message("ok " * words, "assistant", channel="final"))
    return messages


conversations = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=8)


@given(kinds=conversations, room=st.integers(0, 400))
def test_the_rest_is_a_whole_end_that_fits_or_the_newest_turn(kinds: list[tuple[bool, int, int]], room: int) -> None:
    messages = _turns(kinds)
    head = 1 if messages[0].role == "developer" else 0
    rest = drop_oldest(messages, room)[head:]
    size = sum(len(each.tokens) for each in (*messages[:head], *rest)) // 4
    starts = [0, *accumulate(developer + 2 + 2 * calls for developer, calls, _ in kinds)]

    assert rest == messages[len(messages) - len(rest) :]
    assert len(messages) - len(rest) in (head, *starts)
    assert len(rest) >= starts[-1] - starts[-2] - head
    assert size <= room or len(rest) == starts[-1] - max(starts[-2], head)
    assert {each.call_id for each in rest if each.role == "tool"} == {
        each.call_id for each in rest if each.role == "assistant" and each.call_id
    }
