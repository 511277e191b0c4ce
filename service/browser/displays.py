"""The browser's displays in a conversation, as notes of its turns: they go where the turns go, and with them.

No prompt has a note. The pages stand in it as they were read, so that any process that continues the conversation
shows the same lines under the same numbers.
"""

from collections.abc import Iterable

import msgspec

from service.browser.page import Display
from store.turn import StoredMessage

DISPLAY = "browser_display"
"""The role of a note of a display."""

MAX_CHARS = 1_000_000
"""How much of pages' texts a response takes over from its conversation: the newest that have room. Others are fetched
again.
"""

MAX_DISPLAYS_CHARS = 2_000_000
"""How much there may be of it at the end of a response, before new pages are kept without their texts."""

_DISPLAY = msgspec.json.Decoder(Display)


def note_of(display: Display) -> StoredMessage:
    """The note of a display, which is the next one of its conversation."""
    return StoredMessage(DISPLAY, b"", name=msgspec.json.encode(display).decode())


def displays_of(notes: Iterable[StoredMessage]) -> tuple[Display, ...]:
    """The displays of a conversation's notes, by their cursors. It takes a millisecond for each megabyte of them."""
    left, kept = MAX_CHARS, list[Display]()
    for note in reversed(list(notes)):
        display = _DISPLAY.decode(note.name or "")
        if display.size > left:
            display = display.bare()
        left -= display.size
        kept.append(display)
    return tuple(reversed(kept))


def with_room(display: Display, before: Iterable[Display]) -> Display:
    """A display as it is kept beside those before it."""
    size = display.size + sum(each.size for each in before)
    return display if size <= MAX_DISPLAYS_CHARS else display.bare()
