"""The browser, as the demo engine uses it: a search, the first page that was found, and an answer that cites it."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from service.engine.demo.functions import Declaration
from service.engine.demo.reading import Output

SEARCH, OPEN = "browser.search", "browser.open"

QUOTED_LINE_CHARS = 200
"""How much of a page's line is said again."""

_DISPLAY = re.compile(r"\[(\d+)\] ")
_LINE = re.compile(r"^L(\d+): (.*\w.*)$", re.MULTILINE)
_LINK = re.compile(r"【\d+†([^†】]*)[^】]*】")


class Opening(NamedTuple):
    """A page is to be opened: the function that does it, and what it is given."""

    function: Declaration
    arguments: dict[str, Any]


def onward(outputs: Sequence[Output], declarations: Sequence[Declaration]) -> Opening | None:
    """What to open after a search that found something; None where that was something else."""
    last = outputs[-1]
    able = [each for each in declarations if each.name == OPEN]
    return Opening(able[0], {"id": 0}) if able and last.tool == SEARCH and "【0†" in last.text else None


def cited(outputs: Sequence[Output]) -> str | None:
    """The first line of the page that was opened last, with a citation; None where there is none."""
    last = outputs[-1]
    display = _DISPLAY.match(last.text)
    if last.tool != OPEN or display is None:
        return None
    said = [line for line in _LINE.finditer(last.text) if not line[2].startswith(("URL:", "#"))]
    if not said:
        return None
    line = _LINK.sub(r"\1", said[0][2]).strip().removesuffix(".")[:QUOTED_LINE_CHARS]
    return f"{line}【{display[1]}†L{said[0][1]}】."
