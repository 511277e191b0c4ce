"""Constraints of a model that writes a markup of its own: structural tags, in the notation of grammar/tags.py.

A tag lets the model reason first, and then asks for calls of some tools, for an answer in a format, or for either. It
names marks by their tokens where they are one, so that no text spells one. Where a mark is spelled in ordinary tokens,
free text is `any_text` without that spelling, which xgrammar has and llama.cpp's grammars have not.

Calls are written as the models' templates write them, so a tag allows less than what the parsers read. A model with
nothing asked of it gets no tag. A server that reads its model itself gets tools and formats as Chat Completions has
them: that server has to enforce them, and the check at the end sees whether it did.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from service.engine.port import HARMONY, SERVER, MarkupTags, Speech
from service.features.models.markup.families import ENDS, FAMILIES, MARKUPS, CallsForm, ReasoningPlace
from service.features.models.markup.stream import MarkupPart
from service.grammar.tags import (
    TAGS_CACHED,
    Format,
    const,
    content_tag,
    either,
    optional,
    sequence,
    structural_tag,
    token,
)

_ANY_OBJECT = {"type": "json_schema", "json_schema": {"type": "object"}}


class Callable(msgspec.Struct, frozen=True):
    """A tool as the model knows it; `content` is the format of its arguments (grammar/tags.py), None for any object."""

    name: str
    content: str | None = None


class TurnConstraint(msgspec.Struct, frozen=True):
    """A request's demands on a model: which tools it may call, whether it has to, whether several times, and the format
    of its answer (grammar/tags.py), None for any text.
    """

    tools: tuple[Callable, ...] = ()
    required: bool = False
    parallel: bool = True
    answer: str | None = None


@lru_cache(maxsize=TAGS_CACHED)
def tag(markup: str, marks: tuple[tuple[str, int], ...], asked: TurnConstraint, part: MarkupPart) -> str | None:
    """The structural tag of a request, where a generation goes on in a part of the answer; None if it demands nothing.

    `marks` are as a Speech has them. Behind a call, another one may follow, or the end. Raises LookupError for tools
    of a markup whose calls can't be constrained, and for one whose answers stand between marks.
    """
    return _Writer(markup, dict(marks)).tag(asked, part)


class _Writer:
    """Writes tags for one vocabulary."""

    def __init__(self, markup: str, marks: Mapping[str, int]) -> None:
        self._markup = MARKUPS[markup]
        known = {*self._markup.spellings, *ENDS} - {*self._markup.parts}
        self._marks = {spelling: id for spelling, id in marks.items() if spelling in known}

    def tag(self, asked: TurnConstraint, part: MarkupPart) -> str | None:
        """See `tag`."""
        strict = any(tool.content is not None for tool in asked.tools)
        if not (asked.required or strict or asked.answer is not None) or part is MarkupPart.CALL:
            return None
        if self._markup.around and self._markup.think:
            raise LookupError("answers of this markup can't be constrained")
        calls = self._calls(asked) if asked.tools else None
        if part is MarkupPart.BEHIND:
            if not asked.parallel or calls is None:
                return structural_tag(const(""))
            return structural_tag(optional(calls))
        last: list[Format] = []
        if calls is not None:
            free = [] if asked.required or asked.answer is not None else [self._free(self._openings())]
            last.append(sequence(*free, calls) if asked.required else sequence(*free, optional(calls)))
        if not asked.required and asked.answer is not None:
            last = [calls, _content(asked.answer)] if calls is not None else [_content(asked.answer)]
        return structural_tag(sequence(*self._thinking(part), either(last)))

    def _thinking(self, part: MarkupPart) -> list[Format]:
        """The formats that let the model reason before all else."""
        markup = self._markup
        if not markup.think or part is MarkupPart.TEXT:
            return []
        seam = _lines() if markup.thinking_seam or markup.call_seam else []
        ended = [
            self._free((markup.think, markup.think_end, *self._openings())),
            *self._spell(markup.think_end),
            *seam,
        ]
        if part is MarkupPart.THINKING:
            return ended
        return [optional(sequence(*self._spell(markup.think), *ended))]

    def _calls(self, asked: TurnConstraint) -> Format:
        """One call or several, with the text around all of them."""
        form = self._markup.form
        if form is None:
            raise LookupError("calls of this markup can't be constrained")
        each = either([self._call(form, tool) for tool in asked.tools])
        more = [{"type": "star", "content": sequence(*self._spell(form.between), each)}] if asked.parallel else []
        return sequence(*self._spell(form.opens), each, *more, *self._spell(form.closes))

    def _call(self, form: CallsForm, tool: Callable) -> Format:
        arguments = _content(tool.content) if tool.content is not None else dict(_ANY_OBJECT)
        if arguments["type"] != "json_schema":
            arguments = dict(_ANY_OBJECT)
        if form.style != "json":
            arguments["style"] = form.style
        number = [{"type": "regex", "pattern": "[0-9]{1,4}"}, *self._spell(form.number)] if form.number else []
        return sequence(*self._spell(form.before.format(tool.name)), *number, arguments, *self._spell(form.behind))

    def _openings(self) -> tuple[str, ...]:
        """The marks with which calls begin."""
        return self._markup.sections or (self._markup.call,)

    def _free(self, without: Sequence[str]) -> Format:
        """Text of any kind without these marks."""
        if any(mark and mark not in self._marks for mark in without):
            return {"type": "any_text", "excludes": [mark for mark in without if mark]}
        return {"type": "any_tokens", "exclude_tokens": sorted(self._marks.values())}

    def _spell(self, text: str) -> list[Format]:
        """A text in which marks that are one token are named as those."""
        out: list[Format] = []
        while text:
            place, mark = min(
                ((text.find(mark), mark) for mark in self._marks if mark in text), default=(len(text), "")
            )
            if place:
                out.append(const(text[:place]))
            if mark:
                out.append(token(self._marks[mark]))
            text = text[place + len(mark) :]
        return out


def _content(content: str) -> Format:
    """The format of a content, as an engine gets it."""
    return msgspec.json.decode(content_tag(content))["format"]


def _lines() -> list[Format]:
    """Up to two line breaks."""
    return [optional(const("\n"))] * 2


def tools_asked(tools: bytes, able: Mapping[str, str | None]) -> bytes:
    """The callable ones of tools in JSON. `able` has the format of the arguments of each (grammar/tags.py) by name,
    None for any object.
    """
    listed = msgspec.json.decode(tools, type=list[dict[str, Any]])
    kept = [each for each in listed if each["function"]["name"] in able]
    for each in kept:
        if able[each["function"]["name"]] is not None:
            each["function"]["strict"] = True
    return msgspec.json.encode(kept)


def response_format(content: str) -> bytes:
    """The format of an answer (grammar/tags.py); empty where it isn't JSON."""
    form = msgspec.json.decode(content_tag(content))["format"]
    if form["type"] != "json_schema":
        return b""
    schema = {"name": "answer", "strict": True, "schema": form["json_schema"]}
    return msgspec.json.encode({"type": "json_schema", "json_schema": schema})


def written_by(speech: Speech | None) -> MarkupTags:
    """The markup that a model writes; None speaks Harmony."""
    if speech is None:
        return MarkupTags(HARMONY)
    if speech.family == SERVER:
        return MarkupTags(SERVER)
    family = FAMILIES[speech.family]
    markup = MARKUPS[family.markup]
    return MarkupTags(
        family.markup, family.reasoning is not ReasoningPlace.NONE, bool(markup.call), markup.form is not None
    )
