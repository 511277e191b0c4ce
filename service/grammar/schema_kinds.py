"""What is known of JSON schema's keywords: which belong together, which can't be enforced, and what numbers mean."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from service.errors import InvalidRequest, invalid_value

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
"""The most schemas that are compared each with each."""

_OBJECT = frozenset(("object",))

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
    """What tells a schema from others: types, constants, and the constants of its required properties."""

    types: frozenset[str]
    constants: frozenset[str] | None
    properties: Mapping[str, frozenset[str]]


class Kinds:
    """Which schemas exclude each other. It looks at each once: references bring the same again and again."""

    def __init__(self) -> None:
        self._sorts: dict[int, tuple[Mapping[str, Any], Sort]] = {}
        self._known: dict[tuple[int, int], bool] = {}

    def disjoint(self, schemas: Sequence[Mapping[str, Any]]) -> bool:
        """Whether no value can match two of these, which have no types or a property's constants in common.

        More than MAX_UNLIKE of them have to be constants, or have constants in one and the same property.
        """
        sorts = [self._sort(schema) for schema in schemas]
        if _all_apart([sort.constants for sort in sorts]):
            return True
        names = set(sorts[0].properties) if all(sort.types == _OBJECT for sort in sorts) else set[str]()
        if any(_all_apart([sort.properties.get(name) for sort in sorts]) for name in names):
            return True
        return len(sorts) <= MAX_UNLIKE and all(
            self._apart(one, other) for place, one in enumerate(sorts) for other in sorts[place + 1 :]
        )

    def _sort(self, schema: Mapping[str, Any]) -> Sort:
        if id(schema) not in self._sorts:
            self._sorts[id(schema)] = schema, _sort(schema)
        return self._sorts[id(schema)][1]

    def _apart(self, one: Sort, other: Sort) -> bool:
        pair = (id(one), id(other))
        if pair not in self._known:
            self._known[pair] = _apart(one, other)
        return self._known[pair]


def _all_apart(constants: Sequence[frozenset[str] | None]) -> bool:
    """Whether all of these are there, and no constant is in two of them."""
    every: set[str] = set()
    count = 0
    for each in constants:
        if each is None:
            return False
        every |= each
        count += len(each)
    return len(every) == count


def _sort(schema: Mapping[str, Any]) -> Sort:
    tags = {name: _constants(_property(schema, name)) for name in _required(schema)}
    return Sort(
        frozenset(_types(schema)),
        _constants(schema),
        {name: values for name, values in tags.items() if values is not None},
    )


def _apart(one: Sort, other: Sort) -> bool:
    if one.types and other.types and one.types.isdisjoint(other.types):
        return True
    if one.constants is not None and other.constants is not None:
        return one.constants.isdisjoint(other.constants)
    if one.types == other.types == _OBJECT:
        return any(
            name in other.properties and values.isdisjoint(other.properties[name])
            for name, values in one.properties.items()
        )
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


def _constants(schema: Mapping[str, Any]) -> frozenset[str] | None:
    values = _values(schema)
    if values is None or any(isinstance(value, (list, dict)) for value in values):
        return None
    return frozenset(f"{kind_of(value)} {int(value) if kind_of(value) == 'integer' else value!r}" for value in values)


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None
