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

MAX_DEPTH = 8
"""How deep in a schema a type is looked for."""

TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def types_of(schema: Mapping[str, Any], key: str) -> frozenset[str] | None:
    """The types that the schema of arguments allows a parameter, or None if it says nothing of that."""
    properties = schema.get("properties")
    declared = cast("Mapping[str, Any]", properties).get(key) if isinstance(properties, Mapping) else None
    return _types(declared, schema, MAX_DEPTH) or None


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    known = cast("Mapping[str, Any]", schema)
    found: set[str] = set()
    declared = known.get("type")
    named: list[Any] = list(cast("list[Any]", declared)) if isinstance(declared, list) else [declared]
    found |= {each for each in named if isinstance(each, str)}
    values = known.get("enum")
    listed: list[Any] = list(cast("list[Any]", values)) if isinstance(values, list) else []
    if "const" in known:
        listed.append(known["const"])
    found |= {_type_of(each) for each in listed}
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = known.get(keyword)
        if isinstance(branches, list):
            for each in cast("list[Any]", branches):
                found |= _types(each, root, depth - 1)
    reference = known.get("$ref")
    if isinstance(reference, str):
        found |= _types(_referred(reference, root), root, depth - 1)
    return frozenset(found)


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
