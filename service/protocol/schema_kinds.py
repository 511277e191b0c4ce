"""What is known of JSON schema's keywords: which belong together, which can't be held, and what numbers mean."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from service.protocol.errors import InvalidRequest, invalid_value

KINDS: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
            *("minProperties", "maxProperties", "unevaluatedProperties"),
        )
    ),
    "array": frozenset(("items", "prefixItems", "additionalItems", "minItems", "maxItems", "unevaluatedItems")),
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
}
"""The keywords that say something of one type only."""

_TYPED = frozenset[str]().union(*KINDS.values())
_JOINING = frozenset(("$ref", "allOf", "anyOf", "oneOf", "enum", "const"))

COMBINED: Mapping[str, frozenset[str]] = {
    "$ref": _TYPED | _JOINING - {"$ref"} | {"type"},
    "allOf": _TYPED | _JOINING - {"allOf"} | {"type"},
    "anyOf": _TYPED | _JOINING - {"anyOf"},
    "oneOf": _TYPED | _JOINING - {"oneOf"},
    "enum": _TYPED | _JOINING - {"enum", "const"},
    "const": _TYPED | _JOINING - {"enum", "const"},
}
"""What would be lost in silence beside each of these."""

_BRANCHES = "Write 'anyOf' with a schema for each case."
REFUSED: Mapping[str, str] = {
    "not": "Say what is allowed instead.",
    "if": _BRANCHES,
    "dependentRequired": _BRANCHES,
    "dependentSchemas": _BRANCHES,
    "dependencies": _BRANCHES,
    "contains": "Leave it out.",
    "uniqueItems": "Leave it out.",
    "$dynamicRef": "Use '$ref'.",
    "$recursiveRef": "Use '$ref'.",
}
"""Keywords that can't be held at all, and what to do."""

FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
        *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
    )
)
"""The formats that are held; of others nothing is."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LARGEST = 2**53
"""Beyond, a number is not what it looks like."""

DECIMALS = 6
"""More of them the engine rounds away."""


def kind_of(value: Any) -> str:
    """The type of a JSON value; a whole number is an integer, however it is written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def plain_bounds(given: Mapping[str, Any], path: str, *, whole: bool) -> dict[str, Any]:
    """The bounds of a number; those of an integer as whole numbers. Raises InvalidRequest where nothing is between."""
    held: dict[str, Any] = {}
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or abs(value) > LARGEST:
            raise invalid_value(f"{path}.{name}", value, f"Only numbers up to {LARGEST} can be held.")
        if whole:
            up = name.endswith("inimum") != name.startswith("excl")
            held[name] = math.ceil(value) if up else math.floor(value)
        elif round(value, DECIMALS) != value:
            raise invalid_value(f"{path}.{name}", value, f"Only {DECIMALS} decimals can be held.")
        else:
            held[name] = value
    step = 1 if whole else 0
    low = max([held.get("minimum", -math.inf), held.get("exclusiveMinimum", -math.inf) + step])
    high = min([held.get("maximum", math.inf), held.get("exclusiveMaximum", math.inf) - step])
    open_ended = not whole and low == high and ("exclusiveMinimum" in held or "exclusiveMaximum" in held)
    if low > high or open_ended:
        raise InvalidRequest(
            f"The schema can't be held: no number is between the bounds at '{path}'.",
            code="invalid_json_schema",
            param=path,
        )
    return held


def disjoint(schemas: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no value can match two of these, which have no types or a property's constants in common."""
    return all(_apart(one, other) for place, one in enumerate(schemas) for other in schemas[place + 1 :])


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    first, second = _types(one), _types(other)
    if first and second and first.isdisjoint(second):
        return True
    values, others = _constants(one), _constants(other)
    if values is not None and others is not None:
        return values.isdisjoint(others)
    if first == second == {"object"}:
        for name in _required(one) & _required(other):
            here = _constants(_property(one, name))
            there = _constants(_property(other, name))
            if here is not None and there is not None and here.isdisjoint(there):
                return True
    return False


def _property(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties = schema.get("properties")
    found = cast("Mapping[str, Any]", properties).get(name) if isinstance(properties, dict) else None
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _required(schema: Mapping[str, Any]) -> set[str]:
    names = schema.get("required")
    return set(_strings(cast("list[Any]", names))) if isinstance(names, list) else set()


def _strings(values: Sequence[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _types(schema: Mapping[str, Any]) -> set[str]:
    """The types of a schema; a number may be an integer too. Empty is any."""
    kinds = schema.get("type", [kind_of(value) for value in _values(schema) or ()])
    found = set(_strings(cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])))
    if not found and "properties" in schema:
        return {"object"}
    return found | {"integer"} if "number" in found else found


def _constants(schema: Mapping[str, Any]) -> set[str] | None:
    values = _values(schema)
    if values is None or any(isinstance(value, (list, dict)) for value in values):
        return None
    return {f"{kind_of(value)} {int(value) if kind_of(value) == 'integer' else value!r}" for value in values}


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None
