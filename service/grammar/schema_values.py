"""The parts of a JSON schema that have no schemas in them: types, constants, strings, numbers and counts.

Each is rewritten into what an engine enforces to the letter, or refused; see schemas.py.
"""

from typing import Any, cast

from service.errors import InvalidRequest, invalid_value
from service.grammar.regex import anchored
from service.grammar.schema_kinds import BOUNDS, FORMATS, KINDS, kind_of, plain_bounds

MAX_ENUM = 2048
MAX_COUNT = 8192
"""The largest number of elements or members that is counted."""

MAX_LENGTH = 1024
"""The largest length of a string that is counted: an engine needs a third of a second for it, for 8192 twenty-five."""

Schema = dict[str, Any]


def kinds_of(given: Schema, path: str) -> list[str]:
    """The types of a schema. One without, which has keywords of one type only, is meant to have that."""
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


def narrowed(schema: Any, kind: Any, path: str) -> Any:
    """A schema of a combination that stands beside a type: it has to have the type itself, or none."""
    if not isinstance(schema, dict) or "$ref" in schema or "anyOf" in schema:
        raise refusal(f"{path}.type", "'type' can't be enforced beside a combination of references. Leave it out.")
    given = cast("Schema", schema)
    if given.get("type", kind) != kind:
        raise refusal(f"{path}.type", "'type' differs from that of the schemas beside it. Leave it out.")
    return {**given, "type": kind}


def enumerated(given: Schema, path: str) -> Schema:
    """The values of `enum` or `const`, those that aren't of the type beside them left out."""
    values = listed(given["enum"], f"{path}.enum") if "enum" in given else [given["const"]]
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
        raise refusal(
            f"{path}.{'enum' if 'enum' in given else 'const'}", "No value is left that has the type beside it."
        )
    return {"enum": left}


def string(given: Schema, path: str) -> Schema:
    """The keywords of a string."""
    least, most = counts(given, path, "minLength", "maxLength", limit=MAX_LENGTH)
    form, pattern = given.get("format"), given.get("pattern")
    bounded = least > 0 or most is not None
    check(form is None or isinstance(form, str), f"{path}.format", form, "a string")
    if form is not None and form in FORMATS:
        if pattern is not None or bounded:
            raise refusal(f"{path}.format", "'format' can't be enforced beside a pattern or a length. Leave it out.")
        return {"format": form}
    if pattern is None:
        return given_counts(given, "minLength", "maxLength")
    if bounded:
        raise refusal(
            f"{path}.pattern", "'pattern' can't be enforced beside a length. Put the length into the pattern."
        )
    return {"pattern": anchored(pattern, f"{path}.pattern")}


def number(given: Schema, path: str, kind: str) -> Schema:
    """The keywords of a number of this kind."""
    bounds = plain_bounds({key: given[key] for key in BOUNDS if key in given}, path, integer=kind == "integer")
    multiple = given.get("multipleOf")
    if multiple is not None:
        if kind != "integer" or bounds or type(multiple) is not int or not 0 < multiple <= MAX_COUNT:
            raise refusal(
                f"{path}.multipleOf", "Only whole multiples of integers without bounds can be enforced. Leave it out."
            )
        bounds["multipleOf"] = multiple
    return bounds


def counts(given: Schema, path: str, least: str, most: str, *, limit: int = MAX_COUNT) -> tuple[int, int | None]:
    """The least and the most of something that is counted."""
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


def listed(value: Any, path: str) -> list[Any]:
    """A value that has to be a list with something in it."""
    check(isinstance(value, list) and value != [], path, value, "a list with something in it")
    return cast("list[Any]", value)


def check(right: bool, path: str, value: Any, expected: str) -> None:
    """Raise InvalidRequest unless a value is right."""
    if not right:
        raise invalid_value(path, value, f"Expected {expected}.")


def refusal(path: str, reason: str) -> InvalidRequest:
    """A schema that is right but can't be enforced, for what stands at `path`."""
    return InvalidRequest(f"The schema can't be enforced: '{path}'. {reason}", code="invalid_json_schema", param=path)
