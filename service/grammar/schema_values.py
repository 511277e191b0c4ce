"""The parts of a JSON schema that have no schemas in them: types, constants, strings, numbers and counts.

Each is rewritten into a form that an engine enforces to the letter, or refused; see schemas.py. Beside them stand the
facts about keywords (the ones that belong together, the ones that can't be enforced, the meaning of numbers), and the
targets of `$ref`s.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, cast

import msgspec

from service.errors import InvalidRequest, invalid_value
from service.grammar.regex import MAX_REPEATS_IN_JSON, anchored_within

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
"""The keywords that would be lost in silence beside each of these."""

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
"""Keywords that can't be enforced at all, and the advice for each."""

FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
        *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
    )
)
"""The formats that are enforced; others are ignored."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LARGEST = 2**53
"""The largest exact integer; beyond, a number may be rounded to another."""

MAX_UNLIKE = 32
"""The most schemas of a type that are compared each with each."""

_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

DECIMALS = 6
"""The most decimals of a number; the engine rounds more of them away."""

MAX_ENUM = 2048
MAX_COUNT = 8192
"""The largest number of elements or members that is counted."""

MAX_LENGTH = MAX_REPEATS_IN_JSON
"""The largest length of a string that an engine counts."""

MAX_MULTIPLES = 256
"""The most multiples between two bounds that are written out."""

Schema = dict[str, Any]

NAME_SHOWN = 64
"""The characters of a property's name that a path has."""


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
    """The features that tell schemas apart: types (none is any), constants, and those of required properties."""

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
    """Whether none of these is None, and no constant is in two of them."""
    known = [each for each in constants if each is not None]
    return len(known) == len(constants) and len(set[str]().union(*known)) == sum(map(len, known))


def _constants(schema: Mapping[str, Any]) -> frozenset[str] | None:
    values = schema.get("enum")
    if values is None or any(isinstance(value, (list, dict)) for value in values):
        return None
    return frozenset(f"{kind_of(value)} {int(value) if kind_of(value) == 'integer' else value!r}" for value in values)


def kinds_of(given: Schema, path: str) -> list[str]:
    """The types of a schema. A schema that names none, and has keywords of one type only, has that type."""
    kinds = given.get("type")
    if kinds is None:
        meant = {kind for kind, keywords in KINDS.items() if not keywords.isdisjoint(given)}
        if len(meant) > 1:
            raise refusal(f"{path}.type", "It has keywords of several types. Name its type.")
        return sorted(meant)
    kinds = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
    known = bool(kinds) and all(kind in ("null", "boolean", "integer", *KINDS) for kind in kinds)
    check(known, f"{path}.type", given["type"], "one of null, boolean, integer, number, string, array and object")
    unique = list(dict.fromkeys(kinds))
    return [kind for kind in unique if kind != "integer" or "number" not in unique]


def narrow(schema: Any, kind: Any, path: str) -> Any:
    """A schema of a combination that stands beside a type: it has to have the type itself, or none."""
    if not isinstance(schema, dict) or "$ref" in schema or "anyOf" in schema:
        raise refusal(
            f"{path}.type", "'type' can't be enforced together with a combination of references. Leave it out."
        )
    given = cast("Schema", schema)
    if given.get("type", kind) != kind:
        raise refusal(f"{path}.type", "'type' differs from that of the other schemas. Leave it out.")
    return {**given, "type": kind}


def enumeration(given: Schema, path: str) -> Schema:
    """The values of `enum` or `const`, those that aren't of the type beside them left out."""
    values = as_list(given["enum"], f"{path}.enum") if "enum" in given else [given["const"]]
    if len(values) > MAX_ENUM:
        raise invalid_value(f"{path}.enum", f"{len(values)} values", f"At most {MAX_ENUM} are allowed.")
    if "enum" in given and "const" in given:
        values = [value for value in values if kind_of(value) == kind_of(given["const"]) and value == given["const"]]
    kinds = kinds_of({"type": given["type"]}, path) if "type" in given else None
    left = [
        value
        for value in values
        if kinds is None or kind_of(value) in kinds or ("number" in kinds and kind_of(value) == "integer")
    ]
    if not left:
        raise refusal(f"{path}.{'enum' if 'enum' in given else 'const'}", "No value has the declared type.")
    return {"enum": left}


def string(given: Schema, path: str) -> tuple[Schema, int]:
    """The keywords of a string, and the growth of its pattern, which includes the lengths where it can."""
    least, most = counts(given, path, "minLength", "maxLength", limit=LARGEST)
    form, pattern = given.get("format"), given.get("pattern")
    check(form is None or isinstance(form, str), f"{path}.format", form, "a string")
    lengths = given_counts(given, "minLength", "maxLength")
    if form is not None and form in FORMATS:
        if pattern is not None:
            raise refusal(f"{path}.format", "'format' can't be enforced together with a pattern. Leave it out.")
        return {"format": form, **lengths}, 0
    if pattern is None:
        return lengths, 0
    within = anchored_within(pattern, f"{path}.pattern", least, most)
    return {"pattern": within.pattern, **({} if within.exact else lengths)}, within.grown


def number(given: Schema, path: str, kind: str) -> Schema:
    """The keywords of a number of this kind."""
    bounds = plain_bounds({key: given[key] for key in BOUNDS if key in given}, path, integer=kind == "integer")
    step = _step(given, path, kind)
    return bounds if step is None else {**bounds, "multipleOf": _plain(step)}


def multiples(given: Schema, path: str, kind: str) -> list[float]:
    """The multiples that a number of this kind may be, where its bounds leave at most MAX_MULTIPLES; none if not."""
    step = _step(given, path, kind)
    bounds = plain_bounds({key: given[key] for key in BOUNDS if key in given}, path, integer=kind == "integer")
    low = [bounds[name] for name in ("minimum", "exclusiveMinimum") if name in bounds]
    high = [bounds[name] for name in ("maximum", "exclusiveMaximum") if name in bounds]
    if step is None or not low or not high:
        return []
    first, last = math.ceil(_exact(max(low)) / step), math.floor(_exact(min(high)) / step)
    if last - first >= MAX_MULTIPLES:
        return []
    over, under = bounds.get("exclusiveMinimum", -math.inf), bounds.get("exclusiveMaximum", math.inf)
    few = [_plain(place * step) for place in range(first, last + 1)]
    left = [value for value in few if over < value < under]
    if not left:
        raise refusal(f"{path}.multipleOf", "No multiple is between the bounds.")
    return left


def _step(given: Schema, path: str, kind: str) -> Fraction | None:
    """The step of a number's multiples, None where it may be any. An integer is one of the whole multiples."""
    multiple = given.get("multipleOf")
    if multiple is None:
        return None
    right = isinstance(multiple, (int, float)) and not isinstance(multiple, bool) and 0 < multiple <= LARGEST
    check(right, f"{path}.multipleOf", multiple, f"a number above 0, at most {LARGEST}")
    step = _exact(multiple)
    if kind == "integer":
        return None if step.numerator == 1 else Fraction(step.numerator)
    return step


def _exact(value: float) -> Fraction:
    """A number as it is written in decimals: a tenth for 0.1."""
    return Fraction(str(value))


def _plain(value: Fraction) -> float:
    return value.numerator if value.denominator == 1 else float(value)


def schemas_of(schema: Any) -> Iterator[dict[str, Any]]:
    """An enforced schema and all schemas in it."""
    agenda: list[Any] = [schema]
    while agenda:
        if isinstance(one := agenda.pop(), dict):
            one = cast("dict[str, Any]", one)
            yield one
            for keyword in ("properties", "patternProperties", "$defs"):
                agenda += one.get(keyword, {}).values()
            agenda += [*one.get("anyOf", ()), *one.get("prefixItems", ())]
            agenda += [one.get("items"), one.get("additionalProperties"), one.get("propertyNames")]


def engine_part(given: Schema) -> Schema:
    """The engine's part of an enforced schema, without the schemas in it; the rest is checked at the end (checks.py).

    Lengths become patterns: xgrammar 0.2.8 would let control characters into strings, unescaped. It passes over lengths
    beside a pattern or a format and over most multiples with a warning, so it gets none of these.
    """
    engine = dict(given)
    if "minLength" in given or "maxLength" in given:
        least, most = min(engine.pop("minLength", 0), MAX_LENGTH), engine.pop("maxLength", None)
        most = "" if most is None or most > MAX_LENGTH else most
        if "pattern" not in given and "format" not in given and (least, most) != (0, ""):
            engine["pattern"] = rf"^[\s\S]{{{least},{most}}}$"
    multiple = given.get("multipleOf")
    if multiple is not None and not _engine_counts(given, multiple):
        del engine["multipleOf"]
    return engine


def _engine_counts(given: Schema, multiple: float) -> bool:
    """Whether an engine follows a `multipleOf`: a small whole one, of integers without bounds."""
    bounded = any(name in given for name in BOUNDS)
    return "integer" in given.get("type", ()) and not bounded and isinstance(multiple, int) and multiple <= MAX_COUNT


def checked_alone(given: Schema) -> bool:
    """Whether an enforced schema, without those in it, has a keyword that no engine follows."""
    lengths = [given[name] for name in ("minLength", "maxLength") if name in given]
    beside = "pattern" in given or "format" in given
    return (
        "uniqueItems" in given
        or any(beside or length > MAX_LENGTH for length in lengths)
        or ("multipleOf" in given and not _engine_counts(given, given["multipleOf"]))
    )


def counts(given: Schema, path: str, least: str, most: str, *, limit: int = MAX_COUNT) -> tuple[int, int | None]:
    """The least and the greatest count of elements or members."""
    for name in (least, most):
        value = given.get(name, 0)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= limit or value != int(value):
            raise invalid_value(f"{path}.{name}", value, f"Only integers from 0 to {limit} can be enforced.")
    low, high = int(given.get(least, 0)), given.get(most)
    if high is not None and high < low:
        raise invalid_value(f"{path}.{most}", high, f"It is less than '{least}'.")
    return low, None if high is None else int(high)


def given_counts(given: Schema, *names: str) -> Schema:
    """Those counts that were given."""
    return {name: int(given[name]) for name in names if name in given}


def as_list(value: Any, path: str) -> list[Any]:
    """A value that has to be a list with something in it."""
    check(isinstance(value, list) and value != [], path, value, "a list with something in it")
    return cast("list[Any]", value)


def check(right: bool, path: str, value: Any, expected: str) -> None:
    """Raise InvalidRequest unless a value is right."""
    if not right:
        raise invalid_value(path, value, f"Expected {expected}.")


def refusal(path: str, reason: str) -> InvalidRequest:
    """The refusal of a schema that is valid but can't be enforced, for its part at `path`."""
    return InvalidRequest(f"The schema can't be enforced: '{path}'. {reason}", code="invalid_json_schema", param=path)


class References:
    """The references of one schema. `waiting` has the definitions that are referred to and not read yet: the name, the
    schema and the path of each.
    """

    def __init__(self, root: Any, where: str) -> None:
        """Those of the schema `root`, which stands at the parameter `where`."""
        self._root = root
        self._where = where
        self._names: dict[str, str] = {}
        self._ended: set[str] = set()
        """References that are known to end at a schema that is no reference."""
        self.waiting: list[tuple[str, Any, str]] = []

    def name_of(self, reference: Any, path: str) -> str:
        """The name under which the target of a reference will stand."""
        target: Any = self.target(reference, path)
        if reference not in self._names:
            self._check_end(reference, path)
            self._names[reference] = name = f"d{len(self._names)}"
            steps = [step[:NAME_SHOWN] for step in reference[1:].split("/") if step]
            self.waiting.append((name, target, ".".join([self._where, *steps])))
        return f"#/$defs/{self._names[reference]}"

    def _check_end(self, reference: str, path: str) -> None:
        """Check that a reference ends at a schema, following each only once."""
        seen: set[str] = set()
        further: Any = reference
        while further is not None:
            target: Any = self.target(further, path)
            if further in self._ended:
                break
            if further in seen:
                raise refusal(f"{path}.$ref", "It refers to itself and to nothing else.")
            seen.add(further)
            further = cast("Schema", target).get("$ref") if isinstance(target, dict) else None
        self._ended |= seen

    def target(self, reference: Any, path: str) -> Any:
        """The target of a reference: a place in this schema."""
        try:
            return resolve_pointer(self._root, reference)
        except (LookupError, TypeError, ValueError):
            raise invalid_value(
                f"{path}.$ref", reference, "Refer to a place in the same schema that exists, such as '#/$defs/NAME'."
            ) from None


def resolve_pointer(root: Any, reference: Any) -> Any:
    """The place in a schema that a reference names. Raises LookupError, TypeError or ValueError where there is none."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        raise KeyError(reference)
    target = root
    for step in reference.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        target = target[int(step) if isinstance(target, list) else step]
    return target
