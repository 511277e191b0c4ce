"""JSON of what a model writes between tags, as a tool's schema types it.

Whoever writes arguments as XML writes texts without quotes, so `5` may be a number or a text: the schema says which.
Nothing is invented: what no type of the schema reads as is a text, or JSON as it was written, and the rules of the
response say what is wrong with it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from service.markup.parsers.json_scan import decoded

MAX_LOOKED_AT = 256
"""In so many schemas of a parameter types are looked for: one may refer to others many times, and to itself."""

TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def types_of(schema: Mapping[str, Any], key: str) -> frozenset[str] | None:
    """The types that the schema of arguments allows a parameter, or None if it says nothing of that."""
    properties = schema.get("properties")
    declared = cast("Mapping[str, Any]", properties).get(key) if isinstance(properties, Mapping) else None
    return _types(declared, schema) or None


def _types(declared: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema, and of those that it refers to or chooses among, each of which is looked at once."""
    found: set[str] = set()
    seen: set[int] = set()
    left = [declared]
    while left and len(seen) < MAX_LOOKED_AT:
        schema = left.pop()
        if not isinstance(schema, Mapping) or id(cast("Mapping[str, Any]", schema)) in seen:
            continue
        known = cast("Mapping[str, Any]", schema)
        seen.add(id(known))
        found |= _named_types(known)
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = known.get(keyword)
            left += cast("list[Any]", branches)[:MAX_LOOKED_AT] if isinstance(branches, list) else []
        reference = known.get("$ref")
        if isinstance(reference, str):
            left.append(_referred(reference, root))
    return frozenset(found)


def _named_types(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema itself names, or whose values it lists."""
    declared, values = schema.get("type"), schema.get("enum")
    named: list[Any] = list(cast("list[Any]", declared)) if isinstance(declared, list) else [declared]
    listed: list[Any] = list(cast("list[Any]", values)) if isinstance(values, list) else []
    if "const" in schema:
        listed.append(schema["const"])
    return {each for each in named if isinstance(each, str)} | {_type_of(each) for each in listed}


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference within the schema refers to."""
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, Mapping):
            return None
        place = cast("Mapping[str, Any]", place).get(step.replace("~1", "/").replace("~0", "~"))
    return place


def quoted(text: str) -> str:
    """A text as it stands in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def written(value: str, types: frozenset[str]) -> str:
    """The JSON of a value: the first type that reads it, from the narrowest on, and a text if none does."""
    bare = value.strip()
    if "null" in types and bare.lower() == "null":
        return "null"
    if "integer" in types and _INTEGER.fullmatch(bare):
        return bare
    if "number" in types and _NUMBER.fullmatch(bare):
        return bare
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    said = decoded(bare)
    fits = said is not None and (
        (isinstance(said[0], dict) and "object" in types) or (isinstance(said[0], list) and "array" in types)
    )
    if fits or (said is not None and "string" not in types):
        return bare
    return f'"{quoted(value)}"'
