"""A history that the client keeps itself: read in Harmony's and in chat's form, it makes the store's own prompt."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.harmony.messages import harmony_message, harmony_messages
from service.harmony.render import message
from service.harmony.tokens import decode, unpack
from service.responses.prompt.build import Prompt
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.responses import samples
from tests.support.responses.requests import Json, prompt

NOW: list[Json] = [{"role": "user", "content": "And now?"}]
USER: Json = {"role": "user", "name": None, "content": [{"type": "text", "text": "Hi"}]}
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


def refusal(previous: Sequence[Json], *items: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        made(previous, *items)
    return caught.value


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


def test_input_and_output_messages_of_two_turns_make_the_prompt_that_the_store_would_have_made() -> None:
    thought, answer = message("Hm.", "assistant", channel="analysis"), message("Yes.", "assistant", channel="final")
    first = prompt(input="Hi", instructions="Be brief.")
    chain = [*first.messages, thought, answer]
    second = prompt(chain, input="Really?", instructions="Be brief.")
    history = in_one_go(harmony_messages(second.tokens)) + [harmony_message(each) for each in (thought, answer)]

    assert made(history, *NOW).tokens == prompt([*chain, *second.messages, thought, answer], input=NOW).tokens


def test_a_client_s_history_is_kept_in_the_turn_that_it_came_with() -> None:
    first = made([USER, {"role": "assistant", "content": "Hello."}], *NOW)
    answer = message("So.", "assistant", channel="final")
    whole = [*NOW, {"role": "assistant", "content": "So."}, {"role": "user", "content": "Go on."}]

    continued = prompt([*first.messages, answer], input="Go on.")
    assert continued.tokens == made([USER, {"role": "assistant", "content": "Hello."}], *whole).tokens


# --- the forms ---


def test_system_and_developer_messages_are_left_out() -> None:
    roles = ("system", "developer")
    left_out = [{"role": role, "content": "Be rude."} for role in roles] + [{"author": {"role": "system"}}]

    assert made([*left_out, USER], *NOW).tokens == made([USER], *NOW).tokens


def test_harmony_s_author_may_be_an_object() -> None:
    assert spelled([{"author": {"role": "user"}, "content": [{"type": "text", "text": "Hi"}]}]) == ["userHi"]


def test_chat_s_assistant_thinks_speaks_and_calls() -> None:
    sent = {"role": "assistant", "content": "Wait.", "reasoning": "Hm.", "tool_calls": [TOOL_CALL]}
    answer = {"role": "tool", "tool_call_id": "call_1", "content": "5"}

    assert spelled([USER, sent, answer]) == [
        "userHi",
        "assistantanalysisHm.",
        "assistantcommentaryWait.",
        "assistant to=functions.lookupcommentary json{}",
        "functions.lookup to=assistantcommentary5",
    ]


@pytest.mark.parametrize("content", [None, "", []])
def test_chat_s_assistant_may_say_nothing_but_its_calls(content: object) -> None:
    sent = {"role": "assistant", "content": content, "tool_calls": [TOOL_CALL]}

    assert len(made([sent], ANSWER).messages) == 2


def test_chat_s_words_without_a_call_are_an_answer() -> None:
    assert spelled([{"role": "assistant", "content": "Yes.", "tool_calls": None}]) == ["assistantfinalYes."]


def test_what_harmony_says_of_a_call_is_rendered_as_it_stands() -> None:
    answer = {"role": "tool", "name": "functions.lookup", "content": "5", "channel": "commentary"}

    assert spelled([HARMONY_CALL, answer]) == [
        "assistant to=functions.lookupcommentary json{}",
        "functions.lookup to=assistantcommentary5",
    ]


@pytest.mark.parametrize("name", [None, "lookup"])
def test_the_name_of_a_tool_that_answers_is_filled_in(name: str | None) -> None:
    assert spelled([HARMONY_CALL, {"role": "tool", "name": name, "content": "5"}])[1].startswith("functions.lookup to=")


def test_python_stands_in_no_namespace() -> None:
    call = {"role": "assistant", "channel": "analysis", "recipient": "python", "content": "1 + 1"}
    answer = {"author": {"role": "tool", "name": "python"}, "channel": "analysis", "content": "2"}

    assert spelled([call, answer]) == ["assistant to=pythonanalysis1 + 1", "python to=assistantanalysis2"]


def test_tools_without_a_name_answer_in_the_order_of_the_calls() -> None:
    second = {**HARMONY_CALL, "recipient": "functions.other"}
    messages = made([HARMONY_CALL, second, *[{"role": "tool", "content": "5"}] * 2], *NOW).messages

    assert [each.name for each in messages[2:4]] == ["functions.lookup", "functions.other"]


# --- call ids ---


def test_an_output_answers_chat_s_call_by_its_id() -> None:
    sent = {"role": "assistant", "tool_calls": [TOOL_CALL]}

    assert made([sent], ANSWER).messages[1].name == "functions.lookup"


def test_outputs_answer_harmony_s_calls_which_have_no_id_in_their_order() -> None:
    second = {**HARMONY_CALL, "recipient": "functions.other"}
    messages = made([HARMONY_CALL, second], ANSWER, {**ANSWER, "call_id": "call_2"}).messages

    assert [each.name for each in messages[2:]] == ["functions.lookup", "functions.other"]
    assert [each.call_id for each in messages] == ["call_1", "call_2"] * 2


def test_a_call_that_is_sent_as_an_item_too_stands_once() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
    messages = made([USER, HARMONY_CALL], call, ANSWER).messages

    assert [each.call_id for each in messages] == [None, "call_1", "call_1"]


@pytest.mark.parametrize("call", [HARMONY_CALL, {"role": "assistant", "tool_calls": [TOOL_CALL]}])
def test_a_call_that_nobody_answers_is_refused(call: Json) -> None:
    error = refusal([USER, call], *NOW)

    assert error.param == "input"
    assert "No tool output found" in error.message
