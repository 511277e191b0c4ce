"""What is known of JSON schema's keywords: which belong together, which can't be enforced, and what numbers mean."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from service.errors import InvalidRequest, invalid_value

KINDS: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
            *("minProperties", "maxProperties", "unevaluatedProperties"),
        )
    ),
    "array": frozenset(
        (
            *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
            *("unevaluatedItems", "uniqueItems"),
        )
    ),
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
    "$dynamicRef": "Use '$ref'.",
    "$recursiveRef": "Use '$ref'.",
}
"""Keywords that can't be enforced at all, and what to do."""

FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
        *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
    )
)
"""The formats that are enforced; others are ignored."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LARGEST = 2**53
"""Beyond, a number is not what it looks like."""

MAX_UNLIKE = 32
"""The most schemas of a type that are compared each with each."""

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

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


def plain_bounds(given: Mapping[str, Any], path: str, *, integer: bool) -> dict[str, Any]:
    """The bounds of a number; those of an integer as whole numbers. Raises InvalidRequest where nothing is between."""
    bounds: dict[str, Any] = {}
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or abs(value) > LARGEST:
            raise invalid_value(f"{path}.{name}", value, f"Only numbers up to {LARGEST} can be enforced.")
        if integer:
            up = name.endswith("inimum") != name.startswith("excl")
            bounds[name] = math.ceil(value) if up else math.floor(value)
        elif round(value, DECIMALS) != value:
            raise invalid_value(f"{path}.{name}", value, f"Only {DECIMALS} decimals can be enforced.")
        else:
            bounds[name] = value
    step = 1 if integer else 0
    low = max([bounds.get("minimum", -math.inf), bounds.get("exclusiveMinimum", -math.inf) + step])
    high = min([bounds.get("maximum", math.inf), bounds.get("exclusiveMaximum", math.inf) - step])
    open_ended = not integer and low == high and ("exclusiveMinimum" in bounds or "exclusiveMaximum" in bounds)
    if low > high or open_ended:
        raise InvalidRequest(
            f"The schema can't be enforced: no number is between the bounds at '{path}'.",
            code="invalid_json_schema",
            param=path,
        )
    return bounds


class Sort(msgspec.Struct, frozen=True):
    """What tells a schema from others: types (none is any), constants, and the constants of its required properties."""

    types: frozenset[str]
    constants: frozenset[str] | None
    properties: Mapping[str, frozenset[str]]


def sort_of(schema: Mapping[str, Any]) -> Sort:
    """The sort of an enforced schema. A number may be an integer too."""
    kinds = schema.get("type", [kind_of(value) for value in schema.get("enum", ())])
    types = {kinds} if isinstance(kinds, str) else set[str](kinds)
    types |= {"integer"} if "number" in types else set()
    tags = {name: _constants(schema["properties"][name]) for name in schema.get("required", ())}
    differing = {name: values for name, values in tags.items() if values is not None}
    return Sort(frozenset(types), _constants(schema), differing)


def disjoint(sorts: Sequence[Sort]) -> bool:
    """Whether no value can be of two of these sorts: whether those of each type differ.

    More than MAX_UNLIKE of a type have to be constants, or have constants in one and the same property.
    """
    for kind in _TYPES:
        alike = [sort for sort in sorts if kind in sort.types or not sort.types]
        pairwise = len(alike) <= MAX_UNLIKE and all(map(_differ, combinations(alike, 2)))
        if not (pairwise or _differ(alike)):
            return False
    return True


def _differ(sorts: Sequence[Sort]) -> bool:
    """Whether all of these differ in their constants, or in those of one property."""
    if _all_apart([sort.constants for sort in sorts]):
        return True
    return any(_all_apart([sort.properties.get(name) for sort in sorts]) for name in sorts[0].properties)


def _all_apart(constants: Sequence[frozenset[str] | None]) -> bool:
    """Whether all of these are there, and no constant is in two of them."""
    known = [each for each in constants if each is not None]
    return len(known) == len(constants) and len(set[str]().union(*known)) == sum(map(len, known))


def _constants(schema: Mapping[str, Any]) -> frozenset[str] | None:
    values = schema.get("enum")
    if values is None or any(isinstance(value, (list, dict)) for value in values):
        return None
    return frozenset(f"{kind_of(value)} {int(value) if kind_of(value) == 'integer' else value!r}" for value in values)
