"""The constraints of the model's output: structural tags in xgrammar's notation.

A *content* is the JSON of one format, which a call's arguments or the final answer must match. It is kept in the rules
of a response, and enforced by a tag of its own behind the `<|message|>` of the message in question. A *header tag*
limits the recipients, from any place between two messages on.

Where a tag ends, the engine lets the stop ids through; it lets them through nowhere else, not even where a tag names
them. Servers have stop ids of their own for this, CALL often among them. So every request with a tag must have all of
`tokens.STOPS` as its stop ids, however many calls are to be made: behind a call, the next request goes on.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from service.grammar.schema_values import engine_part, schemas_of
from service.harmony import tokens

MAX_ASIDES = 8
"""The most messages that a model may write before the call or the answer that it has to give."""

MAX_WHITESPACE = 2
"""The most white space in a row in JSON, in characters; a model that has lost its way writes nothing else."""

TAGS_CACHED = 64
"""The number of cached tags: requests of one client ask for the same again and again."""

LAST_MARK = 200018
"""The last special token that Harmony gives a meaning to, or may; the others were never trained."""

Format = dict[str, Any]
"""A format object of xgrammar's structural tags."""


class HeaderState(Enum):
    """The place at which a generation goes on."""

    NEXT = "next"
    """Behind `<|start|>assistant`."""
    BETWEEN = "between"
    """Behind the end of a message that is no call."""
    CALLED = "called"
    """Behind a call; another one may follow, or the end."""
    INSIDE = "inside"
    """Inside the content of reasoning or a preamble, which may go on."""


def schema_content(schema: Mapping[str, Any]) -> str:
    """The content for texts that match a JSON schema that can be enforced (schemas.py)."""
    return _json({"type": "json_schema", "json_schema": schema})


def regex_content(pattern: str) -> str:
    """The content for texts that match a regex as a whole (grammars.py)."""
    return _json({"type": "regex", "pattern": pattern})


def grammar_content(ebnf: str) -> str:
    """The content for texts that match a grammar in xgrammar's EBNF (grammars.py)."""
    return _json({"type": "grammar", "grammar": ebnf})


@lru_cache(maxsize=TAGS_CACHED)
def content_tag(content: str) -> str:
    """The structural tag of a content alone."""
    form: Format = msgspec.json.decode(content)
    if form["type"] == "json_schema":
        for schema in schemas_of(form["json_schema"]):  # without the keywords that only the check at the end follows
            engine = engine_part(schema)
            schema.clear()
            schema.update(engine)
        form["max_whitespace_cnt"] = MAX_WHITESPACE
    return structural_tag(form)


@lru_cache(maxsize=TAGS_CACHED)
def addressing_tag(
    typed: Sequence[str], plain: Sequence[str], final: bool, state: HeaderState, trained: Sequence[str] = ()
) -> str:
    """The structural tag of the recipients that the model may address: those whose content is JSON (`typed`), others
    (`plain`), those that the model was `trained` with, and with `final` everybody, by its final answer.

    It lets the model reason and speak first, in at most MAX_ASIDES messages, and ends with the content of a call or of
    the final answer; a content with a format of its own is let through unread, as it gets a tag of its own.
    """
    kinds: Sequence[tuple[Sequence[str], Sequence[Format], Format]] = (
        (typed, [_JSON_TYPE], _COMMENTARY),
        (plain, [], _COMMENTARY),
        (trained, [_CODE_TYPE], _ASIDE_CHANNEL),
    )
    calls = [call for names, type, channel in kinds if names for call in _calls(names, type, channel)]
    if state is HeaderState.CALLED:
        return structural_tag(optional(sequence(*_OPENING, either(calls))) if calls else const(""))
    last = [*calls, sequence(_CHANNEL, const("final"), _JSON_TYPE, _MESSAGE, _FREE)] if final else calls
    asides = [optional(_ASIDE)] * MAX_ASIDES  # in a `repeat`, xgrammar 0.2.8 lets marks into texts
    before: dict[HeaderState, list[Format]] = {
        HeaderState.NEXT: [],
        HeaderState.BETWEEN: _OPENING,
        HeaderState.INSIDE: [_FREE, token(tokens.END), *_OPENING],
    }
    return structural_tag(sequence(*before[state], *asides, either(last)))


def _calls(recipients: Sequence[str], type: Sequence[Format], channel: Format) -> list[Format]:
    """Calls up to the end of their content. gpt-oss writes the recipient behind the channel, our prompts before it."""
    to = [const(" to="), either([const(recipient) for recipient in recipients])]
    content = [*type, _MESSAGE, _FREE]
    return [
        sequence(_CHANNEL, channel, *to, *content),
        sequence(*to, _CHANNEL, channel, *content),
    ]


def structural_tag(form: Format) -> str:
    """A format as JSON for an engine."""
    return _json({"type": "structural_tag", "format": form})


def token(id: int) -> Format:
    return {"type": "token", "token": id}


def const(text: str) -> Format:
    """A text, in any tokens: a mark can't be written so, only as its token."""
    return {"type": "const_string", "value": text}


def optional(content: Format) -> Format:
    return {"type": "optional", "content": content}


def sequence(*elements: Format) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def either(formats: Sequence[Format]) -> Format:
    return formats[0] if len(formats) == 1 else {"type": "or", "elements": list(formats)}


_CHANNEL, _MESSAGE = token(tokens.CHANNEL), token(tokens.MESSAGE)
_OPENING = [token(tokens.START), const("assistant")]
_FREE: Format = {"type": "any_tokens", "exclude_tokens": list(range(tokens.FIRST_SPECIAL, LAST_MARK + 1))}
"""A content of any kind: a mark can stand only at its end."""

_JSON = either([sequence(const(" "), token(tokens.CONSTRAIN), const("json")), const(" json")])
_JSON_TYPE, _CODE_TYPE = optional(_JSON), optional(either([const(" code"), _JSON]))
_COMMENTARY = const("commentary")
_ASIDE_CHANNEL = either([const("analysis"), _COMMENTARY])
_ASIDE = sequence(*(_CHANNEL, _ASIDE_CHANNEL, _MESSAGE, _FREE, token(tokens.END)), *_OPENING)
"""A message that is neither a call nor the answer, and the beginning of the next."""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
