"""What a request to compact becomes, and the window that it is answered with."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.api.items import CompactionItem, InputItem, MessageItem
from service.api.response import Compaction
from service.harmony.render import message
from service.responses.prompt.compaction import window, with_trigger

RESPONSE_ID = "resp_" + 48 * "0"
TRIGGER = {"type": "compaction_trigger"}
COMPACTION = Compaction("cmp_1", "sealed")
PICTURE = {"type": "input_image", "image_url": "data:,"}
items = st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2), max_size=4)


def said(text: str, role: Any = "user") -> MessageItem:
    return MessageItem(role=role, content=[{"type": "input_text", "text": text}])


def texts(shown: list[InputItem | Compaction]) -> list[str]:
    return [item.text for item in shown if isinstance(item, MessageItem)]


@given(items, st.integers(0, 4))
def test_a_trigger_stands_behind_the_items_however_they_are_written(given: list[object], indent: int) -> None:
    raw = msgspec.json.format(msgspec.json.encode(given), indent=indent)
    assert msgspec.json.decode(with_trigger(msgspec.Raw(raw))) == [*given, TRIGGER]


def test_a_window_shows_what_was_sent_as_it_was_sent() -> None:
    seen = MessageItem(role="user", content=[PICTURE])
    own = [said("Ahoy."), said("Be brief.", "developer"), seen]
    carried = [message("Ahoy.", "user"), message("(an image)", "user")]
    assert window(RESPONSE_ID, own, carried, COMPACTION) == [own[0], seen, COMPACTION]


def test_a_window_shows_what_was_said_before_as_texts_with_ids_of_their_own() -> None:
    own = [said("And now?")]
    shown = window(RESPONSE_ID, own, [message(text, "user") for text in ("One.", "Two.", "And now?")], COMPACTION)
    assert texts(shown) == ["One.", "Two.", "And now?"]
    assert len({item.id for item in shown[:2]}) == 2


def test_a_window_shows_no_message_twice_where_a_compaction_has_it_already() -> None:
    own = [said("One."), CompactionItem("sealed"), said("Two.")]
    shown = window(RESPONSE_ID, own, [message(text, "user") for text in ("One.", "Two.")], COMPACTION)
    assert texts(shown) == ["One.", "Two."]
