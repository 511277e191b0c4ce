"""The format of the answer, `text.format`: its enforcement, its section of the prompt, and its echo."""

import re
from collections.abc import Generator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.decoding import Json, ObjectKind, decode
from service.errors import invalid_value, missing, not_allowed
from service.grammar.schemas import enforced_schema
from service.grammar.tags import schema_content
from service.steps import cached_steps

WHERE = "text.format"

MAX_FORMAT_BYTES = 262_144
"""The longest format that is read, in bytes."""

CACHED_FORMAT_BYTES = 65_536

FORMAT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class AnswerFormat(msgspec.Struct, frozen=True):
    """A format that was read.

    `echo` is the Response's `text.format`. `content` is the format that the final answer must match
    (grammar/tags.py), None where nothing is enforced. `section` is its part of the developer message, "" for none.
    """

    echo: dict[str, Any]
    content: str | None = None
    section: str = ""


TEXT = AnswerFormat({"type": "text"})
"""Any text."""


class _Bare(msgspec.Struct, forbid_unknown_fields=True):
    type: str


class _JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: Annotated[str, Meta(max_length=65_536)] | None = None
    strict: bool | None = None


def read_format(raw: msgspec.Raw, where: str = WHERE) -> Generator[None, None, AnswerFormat]:
    """Read the JSON of `text.format`, yielding now and then; null is text. Raises InvalidRequest.

    A schema that can't be enforced is refused if it is `strict`. If it isn't, any JSON is enforced, or any object where
    the schema is that of one, and the schema is shown to the model alone.
    """
    sent = bytes(raw)
    if len(sent) > MAX_FORMAT_BYTES:
        raise not_allowed(
            f"'{where}' has {len(sent)} bytes, at most {MAX_FORMAT_BYTES} are allowed. Use a smaller schema.", where
        )
    return (_read if len(sent) > CACHED_FORMAT_BYTES else _cached)(sent, where)


def _read(raw: bytes, where: str) -> Generator[None, None, AnswerFormat]:
    kind = decode(raw, ObjectKind | None, where)
    if kind is None:
        return TEXT
    if kind.type is None:
        raise missing(f"{where}.type", "Name one of text, json_object and json_schema.")
    if kind.type == "json_schema":
        given = decode(raw, _JsonSchema, where)
        if given.name is None or given.schema is None:
            absent = "name" if given.name is None else "schema"
            raise missing(f"{where}.{absent}", "A json_schema format has a name and a schema.")
        if not FORMAT_NAME.fullmatch(given.name):
            expected = "A format's name has 1 to 64 of the characters A-Z, a-z, 0-9, _ and -."
            raise invalid_value(f"{where}.name", given.name, expected)
        yield
        schema = yield from enforced_schema(given.schema, f"{where}.schema", strict=bool(given.strict))
        yield
        return _json_schema(given, given.name, given.schema, schema)
    if kind.type not in ("text", "json_object"):
        raise invalid_value(f"{where}.type", kind.type, "Expected one of text, json_object and json_schema.")
    decode(raw, _Bare, where)
    return TEXT if kind.type == "text" else JSON_OBJECT


_cached = cached_steps(64)(_read)


def _json_schema(given: _JsonSchema, name: str, schema: Json, enforced: Mapping[str, Any] | None) -> AnswerFormat:
    echo = {
        "type": "json_schema",
        "name": name,
        "description": given.description,
        "schema": schema,
        "strict": bool(given.strict),
    }
    if enforced is None:
        enforced = ANY_OBJECT if schema.get("type") == "object" else {}
    return AnswerFormat(echo, schema_content(enforced), _section(name, given.description, schema))


def _section(name: str, description: str | None, schema: Mapping[str, Any]) -> str:
    """The section in the words that gpt-oss was trained on, in Harmony's documentation under "Structured output"."""
    comment = "".join(f"// {line}\n" for line in (description or "").splitlines())
    return f"# Response Formats\n\n## {name}\n\n{comment}{msgspec.json.encode(schema).decode()}"


JSON_OBJECT = AnswerFormat(
    {"type": "json_object"},
    schema_content(ANY_OBJECT),
    _section("json_object", "The answer is one JSON object, and nothing else.", ANY_OBJECT),
)
"""Any object."""
