"""Excerpts: what a list shows of a turn, cut from its response and its input as they are stored: JSON of any release,
so what isn't as expected has none.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
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
    answers: list["GivenAnswer"] = []
    calls: dict[str, str] = {}
    """The names of calls that wait for an output, by their ids."""

    def with_names(self, names: Mapping[str, str]) -> "Excerpt":
        """The same, with the names of the calls whose outputs it gives."""
        known = [msgspec.structs.replace(each, name=names.get(each.to, each.name)) for each in self.answers]
        words = title_of(known) if self.input == title_of(self.answers) else self.input
        return msgspec.structs.replace(self, input=words, answers=known)


class GivenAnswer(msgspec.Struct, frozen=True):
    """The answer of a turn to an earlier one that waits for it, by the id of that: one to a request for the approval
    of a call; or the output of a call, which has a name.
    """

    to: str
    words: str
    name: str = ""


UNNAMED = "result"
"""The name of a call that isn't known."""


def title_of(answers: list[GivenAnswer]) -> str:
    """The words of a turn that gives nothing but answers."""
    said = ((each.name and f"{each.name} → {each.words}") or each.words for each in answers)
    return ", ".join(dict.fromkeys(said))[:EXCERPT_CHARS]


MOST_ANSWERS = 100
"""The most answers of one turn that are told, and the most calls."""

ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def excerpt_of(response: bytes, items: bytes, omitted: Collection[str] = ()) -> Excerpt:
    """The excerpt of a turn with this response and these input items, both JSON, without items that were omitted.
    Raises msgspec's errors for JSON that is no response.
    """
    found = msgspec.json.decode(response, type=ReadableResponse)
    told, output = ([raw for raw in each if not _is_in(omitted, raw)] for each in (ITEMS.decode(items), found.output))
    calls = dict(islice(_calls((*told, *output)), MOST_ANSWERS))
    given = chain(_approvals(told, output), _outputs(told, calls))
    answers = list(islice(given, MOST_ANSWERS))
    return Excerpt(
        model=found.model,
        usage=found.usage or TurnUsage(),
        metadata=found.metadata or {},
        input=_first_words(told)
        or title_of(answers)
        or next((call for call in map(_call, _objects(told)) if call), ""),
        output=_answer(output),
        answers=answers,
        calls=calls,
    )


def _approvals(items: list[msgspec.Raw], output: list[msgspec.Raw]) -> Iterator[GivenAnswer]:
    """The answers to requests for approval among input items, and those that a client left out, by the calls made."""
    answered = set[object]()
    for item in _objects((*items, *output), b'"approval_request_id"'):
        request, reason = item.get("approval_request_id"), item.get("reason")
        if isinstance(request, str) and request not in answered:
            answered.add(request)
            approved = item.get("type") == "mcp_call" or item.get("approve") is True
            why = _beginning(reason)
            yield GivenAnswer(request, "Approved" if approved else f"Denied: {why}" if why else "Denied")


def _outputs(items: list[msgspec.Raw], calls: Mapping[str, str]) -> Iterator[GivenAnswer]:
    """The outputs of calls among input items."""
    for item in _objects(items, b'"call_id"'):
        call, type = item.get("call_id"), str(item.get("type"))
        if isinstance(call, str) and type.endswith("_output"):
            yield GivenAnswer(call, _beginning(item.get("output")), calls.get(call, UNNAMED))


def _calls(items: Iterable[msgspec.Raw]) -> Iterator[tuple[str, str]]:
    """The ids and names of calls among items that somebody else than the service answers."""
    for item in _objects(items, b'"call_id"'):
        call, type = item.get("call_id"), str(item.get("type"))
        if isinstance(call, str) and type.endswith("_call"):
            yield call, _name(item)


def _objects(items: Iterable[msgspec.Raw], with_: bytes = b"") -> Iterator[dict[str, Any]]:
    """Items that have this text, decoded."""
    return (_object(msgspec.json.decode(raw)) for raw in items if with_ in bytes(raw))


def _first_words(items: list[msgspec.Raw]) -> str:
    """The beginning of the user's first words among items; else of the first words of anybody."""
    said = ""
    for item in _objects(items):
        if item.get("type", "message") == "message" and (text := _beginning(item.get("content"))):
            if item.get("role") in ("user", None):
                return text
            said = said or text
    return said


def _answer(items: list[msgspec.Raw]) -> str:
    """The beginning of the final answer among items; else of the last message, else the last call. What a tool gave is
    no answer.
    """
    said = call = ""
    for item in _objects(reversed(items)):
        if item.get("type", "message") != "message":
            call = call or _call(item)
        elif text := _beginning(item.get("content")):
            if item.get("phase") == "final_answer":
                return text
            said = said or text
    return said or call


def _beginning(content: object) -> str:
    """The beginning of the first text in a content, without marks of Markdown; where there is none, but a picture or a
    file, its kind.
    """
    parts = cast(list[object], content) if isinstance(content, list) else [{"text": content}]
    kind = ""
    for part in map(_object, parts):
        text = part.get("text", part.get("refusal", part.get("stdout")))
        if isinstance(text, str) and text.strip():
            begun = text[: 8 * EXCERPT_CHARS]
            return " ".join(MARKS.sub(r"\1\3", begun).split() or begun.split())[:EXCERPT_CHARS]
        kind = kind or _KINDS_OF_PARTS.get(str(part.get("type")), "")
    return kind


_KINDS_OF_PARTS = {"input_image": "[image]", "input_file": "[file]"}

MARKS = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|(?:`{3}|~{3}).*$|[-=*_:|][-=*_:| \t]{2,}$)"
    r"|!?\[([^\[\]\n]*)\]\([^()\s]*\)|(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]+)(?<=\S)\2(?!\w)|`+",
    re.MULTILINE,
)
"""Marks of Markdown, with the words of a link or of what is set off. It takes the length of a text, not its square."""


def _call(item: dict[str, Any]) -> str:
    """How a call, or a request to approve one, is shown: by its name and what it passes."""
    asks = item.get("type") == "mcp_approval_request"
    if not asks and not str(item.get("type")).endswith("_call"):
        return ""
    action = _object(item.get("action"))
    passed = (item.get(each) for each in ("arguments", "input", "code"))
    text = next((each for each in (*passed, *map(action.get, ("query", "url"))) if isinstance(each, str)), "")
    called = f"{_name(item)}({' '.join(text.split())})"
    return (f"Asks to approve {called}" if asks else called)[:EXCERPT_CHARS]


def _name(item: dict[str, Any]) -> str:
    """The name of a call, or its kind."""
    name = item.get("name")
    return name if isinstance(name, str) else str(item.get("type")).removesuffix("_call")


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


def _is_in(omitted: Collection[str], item: msgspec.Raw) -> bool:
    """Whether an item is one of those that were omitted."""
    return bool(omitted) and msgspec.json.decode(_OBJECT.decode(item).get("id", b"null")) in omitted


def texts_of(item: msgspec.Raw, omitted: Collection[str]) -> Iterator[str]:
    """The texts of an item; none of one that was omitted. What isn't as expected, as a picture, has none."""
    if _is_in(omitted, item):
        return
    members = _OBJECT.decode(item)
    for name in _MEMBERS:
        with suppress(msgspec.ValidationError):
            found = _WORDS.decode(members.get(name, b"null"))
            if not isinstance(found, list):
                found = [_WordPart(found) if isinstance(found, str) else found or _WordPart()]
            for part in found:
                yield from filter(None, (part.text, part.refusal, part.logs, part.query))
