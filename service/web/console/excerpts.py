"""Excerpts: what a list shows of a turn, cut from its response and its input as they are stored. Pure.

They are JSON of any release, so what isn't as expected has no excerpt.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

EXCERPT_CHARS = 120


class Usage(msgspec.Struct, frozen=True):
    """What a response took."""

    input_tokens: int = 0
    output_tokens: int = 0


class _Response(msgspec.Struct, frozen=True):
    """What is read of a stored response; a turn that was added by hand has none of it."""

    model: str | None = None
    usage: Usage | None = None
    metadata: dict[str, str] | None = None
    output: list[msgspec.Raw] = []


class Excerpt(msgspec.Struct, frozen=True):
    """What is shown of a turn."""

    model: str | None
    usage: Usage
    metadata: dict[str, str]
    input: str
    output: str


_RESPONSE = msgspec.json.Decoder(_Response)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def excerpt_of(response: bytes, items: bytes) -> Excerpt:
    """What is shown of a turn with this response and these input items, both JSON. Raises msgspec's errors for what is
    no response.
    """
    found = _RESPONSE.decode(response)
    return Excerpt(
        model=found.model,
        usage=found.usage or Usage(),
        metadata=found.metadata or {},
        input=_first(_ITEMS.decode(items)),
        output=_first(found.output),
    )


def _first(items: list[msgspec.Raw]) -> str:
    """The beginning of the first text among items, or of the first call where there is none."""
    calls = ""
    for item in map(_object, map(msgspec.json.decode, items)):
        for text in _texts(item):
            if text.strip():
                return " ".join(text[: 8 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]
        calls = calls or _call(item)
    return calls[:EXCERPT_CHARS]


def _texts(item: dict[str, Any]) -> Iterator[str]:
    """The texts of an item: of a message what it says, of a call's output that."""
    if item.get("type") == "reasoning":
        return
    for member in ("content", "output"):
        found = item.get(member)
        if isinstance(found, str):
            yield found
        elif isinstance(found, list):
            texts = (_object(part).get("text") for part in cast(list[object], found))
            yield from (text for text in texts if isinstance(text, str))


def _call(item: dict[str, Any]) -> str:
    """How a call is shown: by its name and what it passes."""
    name, passed = item.get("name"), item.get("arguments", item.get("input"))
    return f"{name}({passed if isinstance(passed, str) else ''})" if isinstance(name, str) else ""


def _object(found: object) -> dict[str, Any]:
    """The members of what is an object; of anything else none."""
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
