"""Views of pages, byte for byte as gpt-oss was trained on them, and the errors that it gets in their place.

[3] Tides in Brest (https://tides.example/brest)
**viewing lines [0 - 7] of 7**

L0: …
"""

from collections.abc import Sequence
from itertools import accumulate
from urllib.parse import unquote

from service.browser.page import Page, found_page, lines_of, plain, without_links
from service.harmony import tokens

MAX_ADDRESS_CHARS = 1_024
MOST_VIEWS = 4
"""How many views' tokens there may be at once, where the model asks for many lines."""

MAX_FOUND = 50
FOUND_LINES = 4
"""How many lines of a page a match shows, and how many matches there are at most."""


class UsageError(Exception):
    """The model asked for a missing page or line. It is told so, and no cursor is used up."""


def shown(cursor: int, page: Page, *, line: int, lines: int, view_tokens: int) -> str:
    """A view of a page from a `line` on: so many `lines`, or as many as have the tokens of a view, where that is below
    1. Raises UsageError for a line that the page doesn't have.
    """
    wrapped = lines_of(page)
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
            break
    else:
        return len(numbered)
    chars = sum(len(tokens.decode((id,))) for id in ids[:view_tokens])
    ends = accumulate(len(line) + 1 for line in numbered)
    return sum(1 for _ in _up_to(ends, chars)) + 1


def _up_to(ends: "accumulate[int]", most: int) -> "list[int]":
    taken: list[int] = []
    for end in ends:
        if end > most:
            break
        taken.append(end)
    return taken


def found(page: Page, pattern: str) -> Page:
    """The matches of a pattern in a page, in capitals or small letters."""
    pattern = pattern.lower()
    lines = without_links("\n".join(lines_of(page))).split("\n")
    places: list[int] = []
    number = 0
    while number < len(lines) and len(places) < MAX_FOUND:
        if pattern in lines[number].lower():
            places.append(number)
            number += FOUND_LINES
        else:
            number += 1
    matches = [
        "\n".join((f"# 【{match}†match at L{place}】", *lines[place : place + FOUND_LINES]))
        for match, place in enumerate(places)
    ]
    text = "\n\n".join(matches) if matches else f"No `find` results for pattern: `{pattern}`"
    return found_page(page, pattern, places, text)


def shortened(text: str) -> str:
    """A text of at most so many characters, as errors and headers have it."""
    return text if len(text) <= MAX_ADDRESS_CHARS else f"{text[: MAX_ADDRESS_CHARS - 3]}..."
