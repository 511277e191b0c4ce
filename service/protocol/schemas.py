"""Which JSON schemas can be held: those that the engine's grammar follows to the letter.

An engine holds a schema by masking tokens, and passes over in silence what it doesn't know. So a schema is held only if
whatever the engine lets through is valid; everything else is refused here, before anything is sampled, with the keyword
that can't be held. What xgrammar 0.2.8 does with each keyword was measured against a validator (decision 27).

A held schema is rewritten into the few keywords that are left: every one beside a type, references by plain names.
Objects without `additionalProperties` have no other members than their properties, and these in their order.
"""

import math
from typing import Any, cast

from service.protocol.errors import InvalidRequest, invalid_value
from service.protocol.regexes import anchored
from service.protocol.schema_kinds import (
    BOUNDS,
    COMBINED,
    FORMATS,
    KINDS,
    REFUSED,
    disjoint,
    kind_of,
    plain_bounds,
)

MAX_DEPTH = 32
"""How deep schemas may be nested in one another; vLLM refuses 64 levels of JSON, two to a schema."""

MAX_SCHEMAS = 4096
"""How many schemas a schema may have in it, references followed once."""

MAX_ENUM = 2048
MAX_COUNT = 8192
"""The largest length or number of elements or members that is counted."""

Schema = dict[str, Any]


def held_schema(schema: Any, where: str) -> Schema:
    """The schema, which stands at the parameter `where`, in the form in which it is held.

    Raises InvalidRequest, with the keyword that can't be held as its param.
    """
    reader = _Reader(schema, where)
    held = reader.read(schema, where, 0)
    while reader.waiting:
        reader.read_next()
    return {**held, "$defs": reader.definitions} if reader.definitions else held


class _Reader:
    """One schema with its definitions, which are read when somebody refers to them, each once."""

    def __init__(self, root: Any, where: str) -> None:
        self._root = root
        self._where = where
        self._names: dict[str, str] = {}
        self._schemas = 0
        self.waiting: list[tuple[str, Any, str]] = []
        self.definitions: Schema = {}

    def read_next(self) -> None:
        """Read a definition that was referred to."""
        name, schema, path = self.waiting.pop()
        self.definitions[name] = self.read(schema, path, 0)

    def read(self, schema: Any, path: str, depth: int) -> Schema:
        """The held form of a schema that stands at `path`."""
        self._schemas += 1
        if depth > MAX_DEPTH or self._schemas > MAX_SCHEMAS:
            limits = f"at most {MAX_DEPTH} schemas may be nested, and {MAX_SCHEMAS} be there at all"
            raise invalid_value(self._where, "a schema", f"It is too large: {limits}. Simplify it.")
        if schema is True:
            return {}
        if schema is False:
            raise _refusal(path, "Nothing matches 'false'. Leave it out.")
        if not isinstance(schema, dict):
            raise InvalidRequest(
                f"Invalid type for '{path}': expected a schema, an object.", code="invalid_type", param=path
            )
        given = {key: value for key, value in cast("Schema", schema).items() if not _asks_nothing(key, value)}
        for keyword in given:
            if keyword in REFUSED:
                raise _refusal(f"{path}.{keyword}", f"'{keyword}' can't be held. {REFUSED[keyword]}")
        for keyword in ("$ref", "allOf", "anyOf", "oneOf", "enum", "const"):
            if keyword in given:
                return self._combined(keyword, given, path, depth)
        return self._typed(given, path, depth)

    def _combined(self, keyword: str, given: Schema, path: str, depth: int) -> Schema:
        beside = [key for key in given if key in COMBINED[keyword]]
        if beside:
            raise _refusal(
                f"{path}.{beside[0]}",
                f"'{beside[0]}' can't be held beside '{keyword}'. Move it into the schemas there.",
            )
        if keyword == "$ref":
            return {"$ref": self._reference(given["$ref"], path)}
        if keyword in ("enum", "const"):
            return _enumerated(given, path)
        schemas = _listed(given[keyword], f"{path}.{keyword}")
        if keyword == "allOf":
            if len(schemas) > 1:
                raise _refusal(f"{path}.allOf", "'allOf' of several schemas can't be held. Merge them into one.")
            return self.read(schemas[0], f"{path}.allOf[0]", depth)
        if "type" in given:
            schemas = [_narrowed(each, given["type"], path) for each in schemas]
        held = [self.read(each, f"{path}.{keyword}[{place}]", depth + 1) for place, each in enumerate(schemas)]
        if keyword == "oneOf" and not disjoint([self._resolved(each, schemas[n]) for n, each in enumerate(held)]):
            raise _refusal(
                f"{path}.oneOf",
                "'oneOf' can be held only if the schemas exclude each other, by their type or by a required property "
                "with different constants. Use 'anyOf'.",
            )
        return {"anyOf": held}

    def _resolved(self, held: Schema, given: Any) -> Schema:
        """A held schema, or the one that it refers to, as far as is needed to tell it from others."""
        if "$ref" not in held:
            return held
        return cast("Schema", self._target(given["$ref"] if "$ref" in given else given["allOf"][0]["$ref"], ""))

    def _reference(self, reference: Any, path: str) -> str:
        """The name under which what is referred to will stand."""
        target = self._target(reference, path)
        if reference not in self._names:
            seen = {reference}
            while isinstance(target, dict) and (further := cast("Schema", target).get("$ref")) is not None:
                if further in seen:
                    raise _refusal(f"{path}.$ref", "It refers to itself and to nothing else.")
                seen.add(further)
                target = self._target(further, path)
            self._names[reference] = name = f"d{len(self._names)}"
            steps = [step for step in reference[1:].split("/") if step]
            self.waiting.append((name, target, ".".join([self._where, *steps])))
        return f"#/$defs/{self._names[reference]}"

    def _target(self, reference: Any, path: str) -> Any:
        """What a reference refers to: a place in this schema."""
        target = self._root
        try:
            if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
                raise KeyError(reference)
            for step in reference.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                target = target[int(step)] if isinstance(target, list) else target[step]
        except (LookupError, TypeError, ValueError):
            raise invalid_value(
                f"{path}.$ref", reference, "Refer to a place in the same schema that exists, such as '#/$defs/NAME'."
            ) from None
        return target

    def _typed(self, given: Schema, path: str, depth: int) -> Schema:
        kinds = _kinds(given, path)
        held: Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
        if "object" in kinds:
            held |= self._object(given, path, depth)
        if "array" in kinds:
            held |= self._array(given, path, depth)
        if "string" in kinds:
            held |= _string(given, path)
        for kind in ("integer", "number"):
            if kind in kinds:
                held |= _number(given, path, kind)
        return held

    def _object(self, given: Schema, path: str, depth: int) -> Schema:
        properties = given.get("properties", {})
        required = given.get("required", [])
        _check(isinstance(properties, dict), f"{path}.properties", properties, "an object of schemas")
        _check(
            isinstance(required, list) and all(isinstance(name, str) for name in required),
            f"{path}.required",
            required,
            "a list of names",
        )
        read = {name: self.read(each, f"{path}.properties.{name}", depth + 1) for name, each in properties.items()}
        held: Schema = {}
        names = given.get("propertyNames"), given.get("patternProperties")
        others: Any = given.get("additionalProperties", False if given.get("unevaluatedProperties") is False else None)
        if names != (None, None):
            held |= self._named(given, path, depth)
        elif isinstance(others, dict):
            held["additionalProperties"] = self.read(others, f"{path}.additionalProperties", depth + 1)
        elif others is not None:
            _check(isinstance(others, bool), f"{path}.additionalProperties", others, "a schema or a boolean")
            held["additionalProperties"] = others
        for name in required:
            if name not in read and (others is False or names != (None, None)):
                raise _refusal(f"{path}.required", f"'{name}' is required and not among the properties. Declare it.")
            read.setdefault(name, held.get("additionalProperties", {}) if isinstance(others, dict) else {})
        least, most = _counts(given, path, "minProperties", "maxProperties")
        if not read and "additionalProperties" not in held and names == (None, None):
            held["additionalProperties"] = True
        if least > len(read) and least > 1:
            raise _refusal(
                f"{path}.minProperties",
                "Members of any name can't be counted, as one may be there twice. Declare properties.",
            )
        if most is not None and most < len(required):
            raise _refusal(f"{path}.maxProperties", f"{len(required)} properties are required.")
        if read:
            held["properties"] = read
        if required:
            held["required"] = list(dict.fromkeys(required))
        return held | _bounds(given, "minProperties", "maxProperties")

    def _named(self, given: Schema, path: str, depth: int) -> Schema:
        """Members whose names follow a rule, which have to be all that there are."""
        keyword = "propertyNames" if "propertyNames" in given else "patternProperties"
        for other in ("properties", "patternProperties", "required"):
            if other != keyword and other in given:
                raise _refusal(
                    f"{path}.{keyword}", f"'{keyword}' can't be held beside '{other}'. Declare each property."
                )
        if keyword == "patternProperties":
            patterns = given[keyword]
            _check(isinstance(patterns, dict), f"{path}.{keyword}", patterns, "an object of schemas")
            if len(patterns) != 1 or isinstance(given.get("additionalProperties"), dict):
                raise _refusal(f"{path}.{keyword}", "Only one pattern, and nothing besides, can be held.")
            [(pattern, each)] = patterns.items()
            where = f"{path}.{keyword}.{pattern}"
            return {
                "patternProperties": {anchored(pattern, where): self.read(each, where, depth + 1)},
                "additionalProperties": False,
            }
        if given.get("additionalProperties", True) is not True:
            raise _refusal(
                f"{path}.{keyword}",
                f"'{keyword}' can't be held beside 'additionalProperties'. Use 'patternProperties'.",
            )
        names = self.read({"type": "string", **given[keyword]}, f"{path}.{keyword}", depth + 1)
        return {"propertyNames": names}

    def _array(self, given: Schema, path: str, depth: int) -> Schema:
        first, items = given.get("prefixItems"), given.get("items")
        if isinstance(items, list):  # as up to draft 7
            first, items = cast("list[Any]", items), given.get("additionalItems")
        least, most = _counts(given, path, "minItems", "maxItems")
        held: Schema = {}
        if first:
            _check(isinstance(first, list), f"{path}.prefixItems", first, "a list of schemas")
            if most is not None and most < len(first):
                first, items = first[:most], False
            held["prefixItems"] = [
                self.read(each, f"{path}.prefixItems[{place}]", depth + 1) for place, each in enumerate(first)
            ]
        if items is False or (items is None and given.get("unevaluatedItems") is False):
            if least > len(first or ()):
                raise _refusal(f"{path}.minItems", f"At most {len(first or ())} elements are allowed.")
            return {**held, "items": False, **({"minItems": least} if least else {})}
        if items is not None or not first or least > len(first):
            held["items"] = self.read(True if items is None else items, f"{path}.items", depth + 1)
        return held | _bounds(given, "minItems", "maxItems")


def _asks_nothing(keyword: str, value: Any) -> bool:
    return value is None and keyword != "const"


def _kinds(given: Schema, path: str) -> list[str]:
    """The types of a schema. One without, which has keywords of one type only, is meant to have that."""
    kinds = given.get("type")
    if kinds is None:
        meant = {kind for kind, keywords in KINDS.items() if not keywords.isdisjoint(given)}
        if len(meant) > 1:
            raise _refusal(f"{path}.type", "It has keywords of several types. Name its type.")
        return sorted(meant)
    kinds = cast("list[Any]", kinds if isinstance(kinds, list) else [kinds])
    known = bool(kinds) and all(kind in ("null", "boolean", "integer", *KINDS) for kind in kinds)
    _check(known, f"{path}.type", given["type"], "one of null, boolean, integer, number, string, array and object")
    unique = list(dict.fromkeys(kinds))
    return [kind for kind in unique if kind != "integer" or "number" not in unique]


def _narrowed(schema: Any, kind: Any, path: str) -> Any:
    """A schema of a combination that stands beside a type: it has to have the type itself, or none."""
    if not isinstance(schema, dict) or "$ref" in schema or "anyOf" in schema:
        raise _refusal(f"{path}.type", "'type' can't be held beside a combination of references. Leave it out.")
    given = cast("Schema", schema)
    if given.get("type", kind) != kind:
        raise _refusal(f"{path}.type", "'type' differs from that of the schemas beside it. Leave it out.")
    return {**given, "type": kind}


def _enumerated(given: Schema, path: str) -> Schema:
    """The values of `enum` or `const`, those that aren't of the type beside them left out."""
    values = _listed(given["enum"], f"{path}.enum") if "enum" in given else [given["const"]]
    if len(values) > MAX_ENUM:
        raise invalid_value(f"{path}.enum", f"{len(values)} values", f"At most {MAX_ENUM} are allowed.")
    if "enum" in given and "const" in given:
        values = [value for value in values if kind_of(value) == kind_of(given["const"]) and value == given["const"]]
    kinds = _kinds({"type": given["type"]}, path) if "type" in given else None
    left = [
        value
        for value in values
        if kinds is None or kind_of(value) in kinds or ("number" in kinds and kind_of(value) == "integer")
    ]
    if not left:
        raise _refusal(
            f"{path}.{'enum' if 'enum' in given else 'const'}", "No value is left that has the type beside it."
        )
    return {"enum": left}


def _string(given: Schema, path: str) -> Schema:
    least, most = _counts(given, path, "minLength", "maxLength")
    form, pattern = given.get("format"), given.get("pattern")
    bounded = least > 0 or most is not None
    if form is not None and form in FORMATS:
        if pattern is not None or bounded:
            raise _refusal(f"{path}.format", "'format' can't be held beside a pattern or a length. Leave it out.")
        return {"format": form}
    if pattern is None:
        return _bounds(given, "minLength", "maxLength")
    if bounded:
        raise _refusal(f"{path}.pattern", "'pattern' can't be held beside a length. Put the length into the pattern.")
    return {"pattern": anchored(pattern, f"{path}.pattern")}


def _number(given: Schema, path: str, kind: str) -> Schema:
    held = plain_bounds({key: given[key] for key in BOUNDS if key in given}, path, whole=kind == "integer")
    multiple = given.get("multipleOf")
    if multiple is not None:
        if kind != "integer" or held or not isinstance(multiple, int) or not 0 < multiple <= MAX_COUNT:
            raise _refusal(
                f"{path}.multipleOf", "Only whole multiples of integers without bounds can be held. Leave it out."
            )
        held["multipleOf"] = multiple
    return held


def _counts(given: Schema, path: str, least: str, most: str) -> tuple[int, int | None]:
    for name in (least, most):
        value = given.get(name, 0)
        whole = (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and math.isfinite(value)
            and value == int(value)
        )
        if not whole or not 0 <= value <= MAX_COUNT:
            raise invalid_value(f"{path}.{name}", value, f"Only integers from 0 to {MAX_COUNT} can be held.")
    low, high = int(given.get(least, 0)), given.get(most)
    if high is not None and high < low:
        raise invalid_value(f"{path}.{most}", high, f"It is less than '{least}'.")
    return low, None if high is None else int(high)


def _bounds(given: Schema, *names: str) -> Schema:
    return {name: int(given[name]) for name in names if name in given}


def _listed(value: Any, path: str) -> list[Any]:
    _check(isinstance(value, list) and bool(value), path, value, "a list with something in it")
    return cast("list[Any]", value)


def _check(right: bool, path: str, value: Any, expected: str) -> None:
    if not right:
        raise invalid_value(path, value, f"Expected {expected}.")


def _refusal(path: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"The schema can't be held: '{path}'. {reason}", code="invalid_json_schema", param=path)
