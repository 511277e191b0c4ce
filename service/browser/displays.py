"""The browser's displays: views of pages, byte for byte as gpt-oss was trained on them, and notes of them in turns.

    [3] Tides in Brest (https://tides.example/brest)
    **viewing lines [0 - 7] of 7**

    L0: …

Notes go where the turns of a conversation go, and with them. No prompt has a note. The pages stand in it as they were
read, so that any process that continues the conversation shows the same lines under the same numbers.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from urllib.parse import quote, unquote

import msgspec

from service.browser.page import Display, Page, lines_of, plain, without_links
from service.harmony import tokens
from store.turn import StoredMessage

DISPLAY = "browser_display"
"""The role of a note of a display."""

MAX_CHARS = 1_000_000
"""How much of pages' texts a response takes over from its conversation: the newest that have room. Others are fetched
again.
"""

MAX_DISPLAYS_CHARS = 2_000_000
"""How much there may be of it at the end of a response, before new pages are kept without their texts."""

MAX_ADDRESS_CHARS = 1_024
MOST_VIEWS = 4
"""How many views' tokens there may be at once, where the model asks for many lines."""

MAX_FOUND = 50
FOUND_LINES = 4
"""How many lines of a page a match shows, and how many matches there are at most."""

_DISPLAY = msgspec.json.Decoder(Display)


class UsageError(Exception):
    """The model asked for a missing page or line. It is told so, and no cursor is used up."""


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


def shown(cursor: int, page: Page, *, line: int, lines: int, view_tokens: int) -> str:
    """A view of a page from a `line` on: so many `lines`, or as many as have the tokens of a view, where that is below
    1. Raises UsageError for a line that the page doesn't have.
    """
    wrapped = lines_of(page.text)
    if line >= len(wrapped):
        raise UsageError(f"Invalid location parameter: `{line}`. Cannot exceed page maximum of {len(wrapped) - 1}.")
    numbered = [f"L{number}: {text}" for number, text in enumerate(wrapped[line:], line)]
    wanted = _lines_of_view(numbered, view_tokens)
    if lines > 0:
        wanted = lines if lines <= wanted else min(lines, _lines_of_view(numbered, view_tokens * MOST_VIEWS))
    end = min(line + wanted, len(wrapped))
    address = shortened(plain(" ".join(unquote(page.url).split())))
    header = f"{page.title} ({address})" if address else page.title
    body = "\n".join(numbered[:wanted])
    return f"[{cursor}] {header}\n**viewing lines [{line} - {end - 1}] of {len(wrapped) - 1}**\n\n{body}"


def _lines_of_view(numbered: Sequence[str], view_tokens: int) -> int:
    """How many lines it takes for so many tokens, the one included in which the last of them ends.

    A token's length is that of its own text, a piece of a character counted as one: so the model was shown its views.
    """
    ids: list[int] = []
    for number, line in enumerate(numbered):
        ids += tokens.encode(line if number == len(numbered) - 1 else f"{line}\n")
        if len(ids) > view_tokens:
            chars = sum(len(tokens.decode((id,))) for id in ids[:view_tokens])
            return bisect_right(list(accumulate(len(line) + 1 for line in numbered)), chars) + 1
    return len(numbered)


def found(page: Page, pattern: str) -> Page:
    """The matches of a pattern in a page, in capitals or small letters."""
    pattern = pattern.lower()
    lines = without_links("\n".join(lines_of(page.text))).split("\n")
    places: list[int] = []
    for number, line in enumerate(lines):
        apart = not places or number >= places[-1] + FOUND_LINES
        if apart and len(places) < MAX_FOUND and pattern in line.lower():
            places.append(number)
    matches = [
        "\n".join((f"# 【{match}†match at L{place}】", *lines[place : place + FOUND_LINES]))
        for match, place in enumerate(places)
    ]
    return Page(
        "find",
        f"{page.url}/find?pattern={quote(pattern)}",
        f"Find results for text: `{pattern}` in `{page.title}`",
        "\n\n".join(matches) or f"No `find` results for pattern: `{pattern}`",
        places=tuple(places),
        about=(page.url, page.title),
    )


def shortened(text: str) -> str:
    """A text of at most so many characters, as errors and headers have it."""
    return text if len(text) <= MAX_ADDRESS_CHARS else f"{text[: MAX_ADDRESS_CHARS - 3]}..."
