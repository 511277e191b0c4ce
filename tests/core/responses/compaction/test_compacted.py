"""Compactions: what stands before one is out of the prompt, what it kept is in, and the window that shows it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.items import CompactionItem, MessageItem
from service.api.response import Compaction
from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode
from service.responses.output import sealed
from service.responses.output.compaction import users_words
from service.responses.prompt.compaction import INSTRUCTION, PARTLY, window, with_trigger
from store.turn import StoredMessage
from tests.support.responses.requests import ENVELOPES, Json, prompt

KEPT = (message("My cat is Tom.", "user"), message("Feed him.", "user"))
TRIGGER: Json = {"type": "compaction_trigger"}
OLD: list[Json] = [{"role": "user", "content": "Old words."}, {"role": "assistant", "content": "Old answer."}]
NOW: Json = {"role": "user", "content": "And now?"}


def compaction(*kept: StoredMessage) -> Json:
    payload = sealed.compaction("Tom was fed.", kept)
    return {"type": "compaction", "encrypted_content": ENVELOPES.seal(sealed.COMPACTION, payload)}


def shown(*items: Json, **options: Any) -> str:
    return decode(prompt(input=list(items), **options).tokens).partition("every message.")[2]


def test_the_user_s_words_travel_inside_before_the_summary() -> None:
    text = shown(*OLD, compaction(*KEPT), NOW)

    assert text.index("My cat is Tom.") < text.index("Feed him.") < text.index("Tom was fed.") < text.index("And now?")


def test_the_newest_compaction_holds() -> None:
    other = sealed.compaction("A later summary.")
    later = {"type": "compaction", "encrypted_content": ENVELOPES.seal(sealed.COMPACTION, other)}
    text = shown(compaction(*KEPT), NOW, later)

    assert "Tom" not in text
    assert "A later summary." in text


# --- asking for one ---


def test_a_trigger_asks_for_a_compaction_and_calls_nothing() -> None:
    tools = [{"type": "function", "name": "feed"}]
    made = prompt(input=[*OLD, TRIGGER], tools=tools, tool_choice="required", text={"format": {"type": "json_object"}})

    assert made.rules.compacting
    assert made.rules.callable == ()
    assert made.rules.answer is None


def test_the_wish_for_a_compaction_is_said_last_and_never_kept() -> None:
    made = prompt(input=[*OLD, TRIGGER])

    assert decode(made.tokens).endswith(f"developer{INSTRUCTION}assistant")
    assert made.rules.compacting
    assert made.messages == made.shown == prompt(input=OLD).messages


def test_there_is_nothing_to_compact_without_a_conversation() -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(input=[TRIGGER])

    assert caught.value.param == "input"


def test_what_a_compaction_keeps_are_the_user_s_words_those_of_an_earlier_one_too() -> None:
    made = prompt(input=[*OLD, compaction(*KEPT), NOW, TRIGGER])

    kept = [message.tokens for message in made.rules.kept_messages]
    assert kept == [message.tokens for message in (*KEPT, made.messages[-1])]


NARROW = 2000
LONG: list[Json] = [
    {"role": role, "content": f"{number} " + "word " * 200} for number in range(12) for role in ("user", "assistant")
]


@pytest.mark.parametrize("truncation", ["auto", "disabled"])
def test_only_the_newest_words_that_fit_travel_and_the_model_is_told(truncation: str) -> None:
    items = LONG if truncation == "auto" else LONG[-8:]
    made = prompt(input=[*items, TRIGGER], limit=NARROW, truncation=truncation)
    said = [message for message in made.messages if message.role == "user"]

    assert made.rules.kept_messages == tuple(said[-2:])
    assert PARTLY in decode(made.tokens)
    assert PARTLY not in decode(prompt(input=[*LONG, TRIGGER]).tokens)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    context=st.integers(1200, 4000),
    words=st.lists(st.integers(1, 500), min_size=1, max_size=8),
    instructions=st.integers(0, 400),
)
def test_a_conversation_always_goes_on_from_its_compaction(context: int, words: list[int], instructions: int) -> None:
    items = [{"role": role, "content": "word " * size} for size in words for role in ("user", "assistant")]
    options: Any = {"limit": context, "instructions": "word " * instructions}
    made = prompt(input=[*items, NOW, TRIGGER], truncation="auto", **options)
    payload = sealed.compaction("short " * 50, made.rules.kept_messages)
    item = {"type": "compaction", "encrypted_content": ENVELOPES.seal(sealed.COMPACTION, payload)}

    assert len(prompt(input=[*items, item, NOW], **options).tokens) <= context - context // 8


def test_what_travels_can_be_sealed_however_short_its_messages_are() -> None:
    many = [message("x", "user")] * 20_000
    kept = users_words(many, 1_000_000, sealed.MAX_KEPT_BYTES)

    assert 0 < len(kept) < len(many)
    assert len(sealed.compaction("x" * sealed.MAX_SUMMARY_BYTES, kept)) <= sealed.MAX_PAYLOAD_BYTES


RESPONSE_ID = "resp_" + 48 * "0"
WINDOWED = Compaction("cmp_1", "sealed")
PICTURE = {"type": "input_image", "image_url": "data:,"}
items = st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2), max_size=4)


def said(text: str, role: Any = "user") -> MessageItem:
    return MessageItem(role=role, content=[{"type": "input_text", "text": text}])


@given(items, st.integers(0, 4))
def test_a_trigger_stands_behind_the_items_however_they_are_written(given: list[object], indent: int) -> None:
    raw = msgspec.json.format(msgspec.json.encode(given), indent=indent)
    assert msgspec.json.decode(with_trigger(msgspec.Raw(raw))) == [*given, TRIGGER]


def test_a_window_shows_what_was_sent_as_it_was_sent() -> None:
    seen = MessageItem(role="user", content=[PICTURE])
    own = [said("Ahoy."), said("Be brief.", "developer"), seen]
    carried = [message("Ahoy.", "user"), message("(an image)", "user")]
    assert window(RESPONSE_ID, own, carried, WINDOWED) == [own[0], seen, WINDOWED]


def test_a_window_shows_no_message_twice_where_a_compaction_has_it_already() -> None:
    own, kept = [said("One."), CompactionItem("sealed"), said("Two.")], [message(each, "user") for each in ("1", "2")]
    shown = window(RESPONSE_ID, own, kept, WINDOWED)
    assert (own[0] in shown, shown[1:]) == (False, [own[2], WINDOWED])
