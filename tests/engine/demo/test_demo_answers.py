"""Answers in a JSON format: the user's words are in them, wherever the demo has nothing of its own to say."""

import json
from typing import Any

import pytest

from tests.support.engine.prompts import answer, prompt, user

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}


def formatted(words: str, **properties: Any) -> Any:
    """What it answers in the format of an object with these properties."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    section = f"# Response Formats\n\n## answer\n\n{json.dumps(schema)}"
    return json.loads(answer(prompt(user(words), developer=section)).final)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "Alice and Bob are going to a science fair on Friday.",
            {"event_name": "science", "date": "Friday", "participants": ["Alice", "Bob"]},
        ),
        (
            "Carol sails from Brest to Cork on 2025-05-01.",
            {"event_name": "Brest", "date": "2025-05-01", "participants": ["Carol", "Brest", "Cork"]},
        ),
    ],
)
def test_several_values_are_picked_out_of_the_words(words: str, said: Any) -> None:
    assert formatted(words, event_name=TEXT, date=TEXT, participants=TEXTS) == said


def test_numbers_and_places_are_picked_out_of_the_words() -> None:
    assert formatted("Plan 3 days in Oslo", city=TEXT, days={"type": "integer"}) == {"city": "Oslo", "days": 3}


def test_no_value_has_an_answer_in_a_format_in_it() -> None:
    said = formatted('Say "hello" to all.', title=TEXT, body=TEXT, tags=TEXTS)
    assert "{" not in "".join([said["title"], said["body"], *said["tags"]])


def test_one_value_is_the_answer() -> None:
    assert formatted("Count to 2.", answer=TEXT) == {"answer": "1\n2"}
    assert formatted("My dog is ill.", answer=TEXT)["answer"].startswith('You said "My dog is ill.".')
