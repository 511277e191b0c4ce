"""The format of the answer, `text.format`: what is held of it, what the prompt says of it, and how it is echoed."""

import re
from collections.abc import Generator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.api.decoding import decode, decoder_of
from service.errors import InvalidRequest, invalid_value, missing
from service.grammar.schemas import held_steps
from service.grammar.tags import schema_content

WHERE = "text.format"

MAX_FORMAT_BYTES = 262_144
"""The longest format that is read."""

FORMATS_CACHED = 64
CACHED_FORMAT_BYTES = 65_536

FORMAT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class AnswerFormat(msgspec.Struct, frozen=True):
    """A format that was read.

    `echo` is the Response's `text.format`. `content` is what the final answer must match (constraints.py), None where
    nothing is held. `section` is what the developer message says of it, "" for nothing.
    """

    echo: dict[str, Any]
    content: str | None = None
    section: str = ""


TEXT = AnswerFormat({"type": "text"})
"""Any text."""


class _Kind(msgspec.Struct):
    type: str | None = None


class _Bare(msgspec.Struct, forbid_unknown_fields=True):
    type: str


class _JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: Annotated[str, Meta(max_length=65_536)] | None = None
    strict: bool | None = None


_KIND = decoder_of(_Kind | None)
_BARE = decoder_of(_Bare)
_JSON_SCHEMA = decoder_of(_JsonSchema)


def read_format(raw: msgspec.Raw, where: str = WHERE) -> Generator[None, None, AnswerFormat]:
    """Read the JSON of `text.format`, yielding now and then; null is text. Raises InvalidRequest.

    A schema that can't be held is refused if it is `strict`. If it isn't, any JSON is held, or any object where the
    schema is that of one, and the schema is a word to the model alone.
    """
    sent = bytes(raw)
    if len(sent) > MAX_FORMAT_BYTES:
        raise InvalidRequest(
            f"'{where}' has {len(sent)} bytes, at most {MAX_FORMAT_BYTES} are allowed. Use a smaller schema.",
            code="invalid_value",
            param=where,
        )
    known = _KNOWN.pop(sent, None)
    if known is None:
        known = yield from _read(sent, where)
    if len(sent) <= CACHED_FORMAT_BYTES:
        _KNOWN[sent] = known
        if len(_KNOWN) > FORMATS_CACHED:
            del _KNOWN[next(iter(_KNOWN))]
    return known


_KNOWN: dict[bytes, AnswerFormat] = {}
"""Formats that were read, the one that was used longest ago first."""


def _read(raw: bytes, where: str) -> Generator[None, None, AnswerFormat]:
    kind = decode(raw, _KIND, where)
    if kind is None:
        return TEXT
    if kind.type is None:
        raise missing(f"{where}.type", "Name one of text, json_object and json_schema.")
    if kind.type == "json_schema":
        return (yield from _json_schema(decode(raw, _JSON_SCHEMA, where), where))
    if kind.type not in ("text", "json_object"):
        raise invalid_value(f"{where}.type", kind.type, "Expected one of text, json_object and json_schema.")
    decode(raw, _BARE, where)
    return TEXT if kind.type == "text" else _json_object()


def _json_object() -> AnswerFormat:
    section = _section("json_object", "The answer is one JSON object, and nothing else.", ANY_OBJECT)
    return AnswerFormat({"type": "json_object"}, schema_content(ANY_OBJECT), section)


def _json_schema(given: _JsonSchema, where: str) -> Generator[None, None, AnswerFormat]:
    if given.name is None or given.schema is None:
        absent = "name" if given.name is None else "schema"
        raise missing(f"{where}.{absent}", "A json_schema format has a name and a schema.")
    if not FORMAT_NAME.fullmatch(given.name):
        raise invalid_value(
            f"{where}.name", given.name, "A format's name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -."
        )
    echo = {
        "type": "json_schema",
        "name": given.name,
        "description": given.description,
        "schema": given.schema,
        "strict": bool(given.strict),
    }
    yield
    content = yield from _content(given, where)
    yield
    return AnswerFormat(echo, content, _section(given.name, given.description, given.schema))


def _content(given: _JsonSchema, where: str) -> Generator[None, None, str]:
    try:
        return schema_content((yield from held_steps(given.schema, f"{where}.schema")))
    except InvalidRequest:
        if given.strict:
            raise
        return schema_content(ANY_OBJECT if (given.schema or {}).get("type") == "object" else {})


def _section(name: str, description: str | None, schema: Mapping[str, Any]) -> str:
    """The words that gpt-oss was trained on, in Harmony's documentation under "Structured output"."""
    comment = "".join(f"// {line}\n" for line in (description or "").splitlines())
    return f"# Response Formats\n\n## {name}\n\n{comment}{msgspec.json.encode(schema).decode()}"
