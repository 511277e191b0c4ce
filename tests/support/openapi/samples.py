"""Values that a schema allows, and values that it doesn't: each alternative, bound and member once, none by chance."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tests.support.openapi.schemas import REF

Json = dict[str, Any]

LONGEST = 2048
"""Up to which length a text or a list is made as long as it may be."""

WRONG: tuple[Any, ...] = (None, True, 10**12, "\0wrong", ["wrong"], {"wrong": 1})
"""Of each of JSON's types a value that fits hardly anywhere."""


def allowed(schema: Json, components: Json, left_out: frozenset[str] = frozenset()) -> Iterator[Any]:
    """Values that a schema allows; of objects those members that aren't `left_out`."""
    if "$ref" in schema:
        yield from allowed(components[schema["$ref"].removeprefix(REF)], components, left_out)
    elif several := schema.get("oneOf") or schema.get("anyOf"):
        for each in several:
            yield from allowed(each, components, left_out)
    elif "const" in schema:
        yield schema["const"]
    elif "enum" in schema:
        yield from schema["enum"]
    else:
        yield from _of_type(schema, components, left_out)


def _of_type(schema: Json, components: Json, left_out: frozenset[str]) -> Iterator[Any]:
    match schema.get("type"):
        case "object":
            yield from _objects(schema, components, left_out)
        case "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", LONGEST + 1)
            if not least:
                yield []
            for each in allowed(schema["items"], components, left_out):
                yield [each] * max(least, 1)
            if most <= LONGEST:
                yield list(islice(allowed(schema["items"], components, left_out), 1)) * most
        case "string":
            yield from _texts(schema)
        case "integer" | "number":
            yield from {schema.get("minimum", 1), schema.get("maximum", 1)}
        case "boolean":
            yield from (True, False)
        case "null":
            yield None
        case _:
            yield {"any": ["thing"]}


def _texts(schema: Json) -> Iterator[str]:
    if "contentEncoding" in schema:
        yield "YQ=="
    elif "format" in schema:
        yield "https://example.com/a"
    else:
        least, most = schema.get("minLength", 0), schema.get("maxLength", LONGEST + 1)
        yield "a" * max(least, 1)
        if not least and "pattern" not in schema:
            yield ""
        if most <= LONGEST:
            yield "a" * most


def _objects(schema: Json, components: Json, left_out: frozenset[str]) -> Iterator[Json]:
    members: Json = schema.get("properties", {})
    least = {name: next(allowed(members[name], components)) for name in schema.get("required", ())}
    yield least
    for name, member in members.items():
        if name not in left_out:
            yield from ({**least, name: value} for value in allowed(member, components, left_out))
    if (inside := schema.get("additionalProperties")) and inside is not True:
        yield from ({**least, "a": value} for value in allowed(inside, components, left_out))


def spoilt(value: Any) -> Iterator[Any]:
    """A value with one thing in it that is another, missing, or too much."""
    yield from WRONG
    if isinstance(value, dict):
        for name, member in value.items():
            yield {other: kept for other, kept in value.items() if other != name}
            yield from ({**value, name: wrong} for wrong in spoilt(member))
        yield {**value, "surprise": 1}
    elif isinstance(value, list) and value:
        yield from ([wrong, *value[1:]] for wrong in spoilt(value[0]))
