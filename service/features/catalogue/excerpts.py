"""Excerpts: what a list shows of a turn, cut from its response and its input as they are stored: JSON of any release,
so what isn't as expected has none.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, cast

import msgspec

EXCERPT_CHARS = 120


class TurnUsage(msgspec.Struct, frozen=True):
    """The tokens of a response."""

    input_tokens: int = 0
    output_tokens: int = 0


class ReadableResponse(msgspec.Struct, frozen=True):
    """The fields that are read of a stored response; a turn that was added by hand has none of them."""

    model: str | None = None
    usage: TurnUsage | None = None
    metadata: dict[str, str] | None = None
    output: list[msgspec.Raw] = []
    safety_identifier: str | None = None
    user: str | None = None
    omits: str | None = None
    """The item that a conversation goes on without."""

    @property
    def people(self) -> set[str]:
        """The names of the person that it was made for."""
        return {name for name in (self.safety_identifier, self.user) if name}


class Excerpt(msgspec.Struct, frozen=True):
    """The excerpt of a turn."""

    model: str | None
    usage: TurnUsage
    metadata: dict[str, str]
    input: str
    output: str
    approvals: list["ApprovalAnswer"] = []


class ApprovalAnswer(msgspec.Struct, frozen=True):
    """The answer to a request for the approval of a call, by the id of that."""

    request: str
    approve: bool
    reason: str | None = None

    @property
    def words(self) -> str:
        """The answer for people."""
        return "Approved" if self.approve else f"Denied: {self.reason}" if self.reason else "Denied"


MOST_APPROVALS = 100
"""The most answers of one turn that are told."""

ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def excerpt_of(response: bytes, items: bytes) -> Excerpt:
    """The excerpt of a turn with this response and these input items, both JSON. Raises msgspec's errors for JSON that
    is no response.
    """
    found, told = msgspec.json.decode(response, type=ReadableResponse), ITEMS.decode(items)
    approvals = list(islice(_approvals(told, found.output), MOST_APPROVALS))
    return Excerpt(
        model=found.model,
        usage=found.usage or TurnUsage(),
        metadata=found.metadata or {},
        input=_first_words(told) or ", ".join(dict.fromkeys(each.words for each in approvals))[:EXCERPT_CHARS],
        output=_answer(found.output),
        approvals=approvals,
    )


def _approvals(items: list[msgspec.Raw], output: list[msgspec.Raw]) -> Iterator[ApprovalAnswer]:
    """The answers to requests for approval among input items, and those that a client left out, by the calls made."""
    answered = set[object]()
    for raw in (*items, *output):
        if b'"approval_request_id"' not in bytes(raw):
            continue
        item = _object(msgspec.json.decode(raw))
        request, reason = item.get("approval_request_id"), item.get("reason")
        if isinstance(request, str) and request not in answered:
            answered.add(request)
            why = " ".join(reason[: 8 * EXCERPT_CHARS].split())[:EXCERPT_CHARS] if isinstance(reason, str) else None
            yield ApprovalAnswer(request, item.get("type") == "mcp_call" or item.get("approve") is True, why)


def _first_words(items: list[msgspec.Raw]) -> str:
    """The beginning of the user's first words among items; else of the first words of anybody, else of what a tool
    gave, else the first call.
    """
    said = given = call = ""
    for item in map(_object, map(msgspec.json.decode, items)):
        if item.get("type", "message") == "message":
            text = _beginning(item.get("content"))
            if text and item.get("role") in ("user", None):
                return text
            said = said or text
        elif not (said or given):
            given = _beginning(item.get("output")) if str(item.get("type")).endswith("_output") else ""
            call = call or _call(item)
    return said or given or call


def _answer(items: list[msgspec.Raw]) -> str:
    """The beginning of the final answer among items; else of the last message, else the last call. What a tool gave is
    no answer.
    """
    said = call = ""
    for item in map(_object, map(msgspec.json.decode, reversed(items))):
        if item.get("type", "message") != "message":
            call = call or _call(item)
        elif text := _beginning(item.get("content")):
            if item.get("phase") == "final_answer":
                return text
            said = said or text
    return said or call


def _beginning(content: object) -> str:
    """The beginning of the first text in a content; where there is none, but a picture or a file, its kind."""
    parts = cast(list[object], content) if isinstance(content, list) else [{"text": content}]
    kind = ""
    for part in map(_object, parts):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str) and text.strip():
            return " ".join(text[: 8 * EXCERPT_CHARS].split())[:EXCERPT_CHARS]
        kind = kind or _KINDS_OF_PARTS.get(str(part.get("type")), "")
    return kind


_KINDS_OF_PARTS = {"input_image": "[image]", "input_file": "[file]"}


def _call(item: dict[str, Any]) -> str:
    """How a call is shown: by its name and what it passes."""
    type, name = item.get("type"), item.get("name")
    if not isinstance(type, str) or not type.endswith(("_call", "mcp_approval_request")):
        return ""
    action = _object(item.get("action"))
    passed = (item.get(each) for each in ("arguments", "input", "code"))
    text = next((each for each in (*passed, *map(action.get, ("query", "url"))) if isinstance(each, str)), "")
    return f"{name if isinstance(name, str) else type.removesuffix('_call')}({' '.join(text.split())})"[:EXCERPT_CHARS]


def _object(found: object) -> dict[str, Any]:
    """The members of what is an object; of anything else none."""
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


class _WordPart(msgspec.Struct, frozen=True):
    """A part of a content, a result or an action, as far as it has words."""

    text: str | None = None
    refusal: str | None = None
    logs: str | None = None
    query: str | None = None


_MEMBERS = ("content", "summary", "name", "arguments", "input", "code", "action", "output", "outputs")
"""The members of items that have words."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Texts = str | list[_WordPart] | _WordPart | None
_WORDS: msgspec.json.Decoder[_Texts] = msgspec.json.Decoder(_Texts)


def texts_of(item: msgspec.Raw, omitted: Collection[str]) -> Iterator[str]:
    """The texts of an item; none of one that was omitted. What isn't as expected, as a picture, has none."""
    members = _OBJECT.decode(item)
    if omitted and "id" in members and msgspec.json.decode(members["id"]) in omitted:
        return
    for name in _MEMBERS:
        with suppress(msgspec.ValidationError):
            found = _WORDS.decode(members.get(name, b"null"))
            parts = (
                [_WordPart(found)]
                if isinstance(found, str)
                else [found]
                if isinstance(found, _WordPart)
                else found or []
            )
            for part in parts:
                yield from filter(None, (part.text, part.refusal, part.logs, part.query))
