"""Messages as openai-harmony writes them down: it reads ours, and renders them to the tokens that they came from."""

from array import array

import pytest
from openai_harmony import Message

from service.harmony import tokens
from service.harmony.messages import TOKENS_A_STEP, harmony_message, harmony_messages
from service.harmony.render import PROMPT_END, frame, message
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.oracles.harmony import Oracle

SYSTEM = message("You are a boat.\nKnowledge cutoff: 2024-06\n\nReasoning: low", "system").tokens
CALL = message(
    '{"city":"Bonn"}',
    "assistant",
    channel="commentary",
    recipient="functions.get_weather",
    content_type="<|constrain|>json",
    call_id="call_1",
)
RESULT = message(
    "rain", "tool", name="functions.get_weather", channel="commentary", recipient="assistant", call_id="call_1"
)
MESSAGES = {
    "developer": message("# Instructions\n\nBe brief.", "developer"),
    "user": message("Hello! 🌊", "user"),
    "analysis": message("Hm.", "assistant", channel="analysis"),
    "final": message("Ahoy.", "assistant", channel="final"),
    "call": CALL,
    "result": RESULT,
    "empty": message("", "assistant", channel="final"),
}


def shown(*messages: bytes) -> list[dict[str, object]]:
    return in_one_go(harmony_messages(tokens.unpack(b"".join((*messages, PROMPT_END)))))


@pytest.mark.parametrize("kept", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_what_openai_harmony_s_to_dict_gives(kept: StoredMessage, oracle: Oracle) -> None:
    ids = list(tokens.unpack(kept.tokens))
    given = harmony_message(kept)
    assert Message.from_dict(given).to_dict() == given
    assert oracle.encoding.render(Message.from_dict(given)) == ids


def test_a_prompt_shows_each_of_its_messages_and_no_more() -> None:
    whole = shown(SYSTEM, *(each.tokens for each in MESSAGES.values()))
    assert whole[0]["role"] == "system"
    assert whole[1:] == [harmony_message(each) for each in MESSAGES.values()]


def test_a_long_prompt_is_read_in_steps() -> None:
    long = frame([1000] * TOKENS_A_STEP, "user").tokens
    steps = harmony_messages(array("I", tokens.unpack(3 * long)))
    assert sum(1 for _ in steps) == 3
