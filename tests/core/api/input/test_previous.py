"""A history that the client keeps itself: read in Harmony's and in chat's form, it makes the store's own prompt."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.harmony.messages import harmony_message
from service.harmony.render import message
from service.harmony.tokens import decode, unpack
from service.responses.prompt.build import Prompt
from store.turn import StoredMessage
from tests.support.responses import samples
from tests.support.responses.requests import Json, prompt

NOW: list[Json] = [{"role": "user", "content": "And now?"}]
TOOL_CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
HARMONY_CALL: Json = {
    "role": "assistant",
    "name": None,
    "content": [{"type": "text", "text": "{}"}],
    "channel": "commentary",
    "recipient": "functions.lookup",
    "content_type": "<|constrain|>json",
}
ANSWER: Json = {"type": "function_call_output", "call_id": "call_1", "output": "5"}


def made(previous: Sequence[Json], *items: Json, **body: Any) -> Prompt:
    return prompt(input=list(items) or None, previous_input_messages=list(previous), **body)


def spelled(previous: Sequence[Json], *items: Json) -> list[str]:
    return [decode(unpack(each.tokens)) for each in made(previous, *(items or NOW)).messages][
        : -1 if not items else None
    ]


# --- the store's own prompt ---


def _said(text: str, channel: str | None) -> StoredMessage:
    return message(text, "user") if channel is None else message(text, "assistant", channel=channel)


histories = st.lists(
    st.builds(_said, samples.texts, st.sampled_from([None, "analysis", "commentary", "final"])), min_size=1, max_size=8
)


@given(chain=histories)
def test_output_messages_given_back_make_the_prompt_that_the_store_would_have_made(chain: list[StoredMessage]) -> None:
    stored = prompt(chain, input=NOW, previous_response_id="resp_0")
    kept = made([harmony_message(each) for each in chain], *NOW)

    assert kept.tokens == stored.tokens


# --- the forms ---


CHATS: Json = {"role": "assistant", "content": "Wait.", "reasoning": "Hm.", "tool_calls": [TOOL_CALL]}
PYTHON: Json = {"role": "assistant", "channel": "analysis", "recipient": "python", "content": "1 + 1"}
CALLED = "assistant to=functions.lookupcommentary json{}"
ANSWERED = "functions.lookup to=assistantcommentary5"


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ([{"author": {"role": "user"}, "content": [{"type": "text", "text": "Hi"}]}], ["userHi"]),
        (
            [CHATS, {"role": "tool", "tool_call_id": "call_1", "content": "5"}],
            ["assistantanalysisHm.", "assistantcommentaryWait.", CALLED, ANSWERED],
        ),
        ([HARMONY_CALL, {"role": "tool", "name": "lookup", "content": "5"}], [CALLED, ANSWERED]),
        (
            [PYTHON, {"author": {"role": "tool", "name": "python"}, "channel": "analysis", "content": "2"}],
            ["assistant to=pythonanalysis1 + 1", "python to=assistantanalysis2"],
        ),
    ],
    ids=["an author", "chat's", "half a name", "python"],
)
def test_a_history_is_spelled_as_the_model_knows_it(history: list[Json], told: list[str]) -> None:
    assert spelled(history) == told


def test_outputs_answer_harmony_s_calls_which_have_no_id_in_their_order() -> None:
    second = {**HARMONY_CALL, "recipient": "functions.other"}
    messages = made([HARMONY_CALL, second], ANSWER, {**ANSWER, "call_id": "call_2"}).messages

    assert [each.name for each in messages[2:]] == ["functions.lookup", "functions.other"]
    assert [each.call_id for each in messages] == ["call_1", "call_2"] * 2
