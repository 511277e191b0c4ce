"""The output of the client's commands: results on stdout, everything about them on stderr.

A model's words, and a user's, may hold what moves a cursor, names a window or turns text around. A terminal gets such
characters by their names; a pipe gets what was said.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TextIO

Json = dict[str, Any]

EXCERPT_CHARS = 60
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Co", "Cs")
"""Unicode's categories of what isn't seen, or changes how the rest is."""

_SEEN = {"\n", "\t", "\u200c", "\u200d"}
"""Of these, what is shown: without the joiners, words of some languages and many emoji fall apart."""

_BOLD, _DIM, _RED, _PLAIN = "\033[1m", "\033[2m", "\033[31m", "\033[0m"
_styles = [_BOLD, _DIM, _RED]
"""Those that a terminal gets."""

_SIGN = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf"
"""The signs of scripts without spaces between words, as the catalogue has them."""

_SIGNS, _WORD = re.compile(f"[{_SIGN}]+"), re.compile(rf"[^\W_{_SIGN}]+")


def _fold(text: str) -> str:
    """The text without case and diacritics, as a search sees it."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(sign))


def harmless(text: str) -> str:
    """`text` with what a terminal would obey, or not show, as `<U+001B>`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"<U+{ord(sign):04X}>" if unicodedata.category(sign) in _UNSEEN and sign not in _SEEN else sign for sign in text
    )


def excerpt(text: str, chars: int = EXCERPT_CHARS) -> str:
    """The beginning of `text` on one line."""
    begun = " ".join(harmless(text[: 4 * chars]).split())
    return begun if len(begun) <= chars and len(text) <= 4 * chars else f"{begun[: chars - 1]}…"


def fitting(line: str, columns: int) -> str:
    """The beginning of `line` that has room in so many columns."""
    room = columns
    for place, sign in enumerate(line):
        room -= 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if room < (1 if place + 1 < len(line) else 0):  # the last one needs none for the mark
            return f"{line[:place]}…"
    return line


def out(text: str, end: str = "\n", mark: str = "") -> None:
    """Print a result, at once; at a terminal those of its words are bold that begin as one of those to `mark`, and
    these themselves in scripts without spaces.
    """
    _print(sys.stdout, text, end, mark=mark)


def remark(text: str, end: str = "\n") -> None:
    """Print something about a result, dimmed where that goes."""
    _print(sys.stderr, text, end, _DIM)


def wrong(text: str) -> None:
    """Print why something failed."""
    _print(sys.stderr, f"harmonium: {text}", "\n", _RED)


def choose_styles(environment: Mapping[str, str]) -> None:
    """Have nothing bold, dimmed or red where the environment asks for that (https://no-color.org)."""
    _styles[:] = [] if environment.get("NO_COLOR") or environment.get("TERM") == "dumb" else [_BOLD, _DIM, _RED]


def bold(text: str) -> None:
    """Print a heading."""
    _print(sys.stdout, text, "\n", _BOLD)


def redrawn(lines: list[str], over: int) -> None:
    """Print lines over as many that were printed last, at a terminal."""
    begin = f"\033[{over}F\033[J" if over else ""
    sys.stdout.write(begin + "".join(f"{harmless(line)}\n" for line in lines))
    sys.stdout.flush()


def _print(stream: TextIO, text: str, end: str, style: str = "", mark: str = "") -> None:
    signs, begins = _SIGNS.findall(mark), tuple(_WORD.findall(_fold(mark)))

    def mark_up(word: re.Match[str]) -> str:
        return f"{_BOLD}{word[0]}{_PLAIN}" if word[0] in signs or _fold(word[0]).startswith(begins) else word[0]

    if stream.isatty():
        text = f"{style}{harmless(text)}{_PLAIN}" if style in _styles else harmless(text)
        text = re.sub("|".join((*signs, _WORD.pattern)), mark_up, text) if mark and _styles else text
    else:
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate has no bytes
    stream.write(text + end)
    stream.flush()


def head_of(response: Json) -> str:
    """The line about a response: its id, when it was made, how it ended, its model and its tokens."""
    parts = [str(response.get("id")), when(response.get("created_at")), str(response.get("status"))]
    parts += [str(response.get("model")), tokens_of(response)]
    details: Json = response.get("incomplete_details") or {}
    if reason := details.get("reason"):
        parts[2] += f" ({reason})"
    own: Json = response.get("harmonium") or {}
    if own.get("recognised"):
        parts.append("continued by recognition")
    return "  ".join(part for part in parts if part)


def when(seconds: object) -> str:
    """A time of the wire as people here read it; empty where it isn't known."""
    if not isinstance(seconds, int | float):
        return ""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def tokens_of(response: Json) -> str:
    """`72→25 tokens (64 cached)`, empty where the usage isn't known."""
    usage: Json | None = response.get("usage")
    if not usage:
        return ""
    details: Json = usage.get("input_tokens_details") or {}
    cached = f" ({details['cached_tokens']} cached)" if details.get("cached_tokens") else ""
    return f"{usage['input_tokens']}→{usage['output_tokens']} tokens{cached}"


def text_of(item: Json) -> str:
    """The text of an item, on as many lines as it has."""
    match item.get("type", "message"):
        case "message":
            return _join(item.get("content"))
        case "reasoning":
            return _join(item.get("content")) or _join(item.get("summary"))
        case "function_call" | "mcp_call" | "custom_tool_call" | "mcp_approval_request":
            return f"{item.get('name')}({item.get('arguments', item.get('input', ''))})"
        case "function_call_output" | "custom_tool_call_output":
            return _join(item.get("output"))
        case "mcp_approval_response":
            reason = f": {item['reason']}" if item.get("reason") else ""
            return "approved" if item.get("approve") else f"denied{reason}"
        case kind:
            return f"[{kind}]"


def _join(content: str | list[Json] | None) -> str:
    return content if isinstance(content, str) else "".join(_part(part) for part in content or ())


def _part(part: Json) -> str:
    return next(
        (part[each] for each in ("text", "refusal") if isinstance(part.get(each), str)), f"[{part.get('type')}]"
    )


def transcript(items: Iterable[Json]) -> Iterator[str]:
    """Items as paragraphs, each with its author."""
    for item in items:
        kind = str(item.get("type", "message"))
        author = item.get("role") if kind == "message" else kind.replace("_", " ")
        yield f"{author}: {text_of(item)}"


def output_text(response: Json) -> str:
    """All that a response says to its user."""
    return "".join(text_of(item) for item in response.get("output", ()) if item.get("type") == "message")
