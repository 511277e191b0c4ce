"""Checks a text against a content (tags.py): a schema or a regex. A grammar is the engine's to enforce, and unchecked.

A validator answers in one go, and its time multiplies. Each schema of an `anyOf` looks at the same value, in which
each of another `anyOf` does so again, and a pattern takes its size times its text. So the steps are counted before.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec

from service.grammar.regex import size, unchecked_tree
from service.grammar.schema_values import checked_alone, schemas_of

MAX_CHECKED_CHARS = 1 << 20
"""The longest text that is checked against a schema or a regex."""

MAX_STEPS = 400_000
"""The most steps of a check, each a schema that looks at a value: some 60 ns."""

PATTERN_A_STEP = 8
"""The size of a pattern (regex.size) that looks at a byte in the time of a step."""

MAX_COUNTED = 40_000
"""The most pairs of schema and value that are looked at to count the steps: some 1 µs each."""

_GRAMMAR = '{"type":"grammar"'


def mismatch(content: str, text: str, *, enforced: bool = False) -> str | None:
    """The reason why a whole text doesn't match a content, None where it does. The words quote nothing of the text.

    A schema or a regex takes some 2 ms for 100,000 characters, at most 50, and up to 10 ms more where large patterns
    are new. A text that would take longer isn't checked: it matches where an engine has `enforced` the content from the
    beginning to the end and knows all its keywords. No text is checked against a grammar.
    """
    if content.startswith(_GRAMMAR):
        return (
            None
            if enforced
            else "its grammar was not enforced to the end, because another process continued the response"
        )
    if len(text) > MAX_CHECKED_CHARS:
        return f"it has {len(text)} characters, and at most {MAX_CHECKED_CHARS} can be checked"
    check = _check(content)
    value: Any = text
    if check.kind != "regex":
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "it is not valid JSON"
    try:
        if check.takes_long(value, len(text)):
            return None if enforced and not check.alone else "it takes too long to be checked"
        if check.matches(value):
            return None
    except ValueError:  # jsonschema-rs has limits of its own
        return "it has numbers or a depth that can't be checked"
    return "it does not match the pattern" if check.kind == "regex" else "it does not match the schema"


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value matches an enforced schema; False where that can't be told in a short time."""
    check = _check(msgspec.json.encode({"type": "json_schema", "json_schema": schema}).decode())
    try:
        return not check.takes_long(value, len(msgspec.json.encode(value))) and check.matches(value)
    except ValueError:
        return False


class _Check(msgspec.Struct, frozen=True):
    """The validator of a schema or a regex, with the figures that its time depends on."""

    kind: str
    schema: Mapping[str, Any]
    matches: Callable[[Any], bool]
    pattern_sizes: Mapping[str, int]
    branches: int
    """The number of schemas and constants that may look at the same value."""

    forks: bool
    """Whether a value inside another may be looked at again by each of them."""

    alone: bool
    """Whether it has keywords that no engine follows."""

    def takes_long(self, value: Any, length: int) -> bool:
        """Whether a value, whose text has so many characters, takes more than MAX_STEPS."""
        at_most = self.branches * length // 2 + sum(self.pattern_sizes.values()) * length // PATTERN_A_STEP
        if not self.forks and at_most <= MAX_STEPS:
            return False
        try:
            _Steps(self.schema.get("$defs", {}), self.pattern_sizes).count(self.schema, value)
        except (_TakesLong, RecursionError):
            return True
        return False


@lru_cache(maxsize=32)  # one may have megabytes of patterns
def _check(content: str) -> _Check:
    """The check of a content: with patterns that never backtrack, and without fetching.

    It says yes or no. For a reason, jsonschema-rs would look at each branch of each `anyOf` anew, and the times
    would multiply.
    """
    form = msgspec.json.decode(content)
    schema = form["json_schema"] if form["type"] == "json_schema" else {"pattern": f"^(?:{form['pattern']})$"}
    validator = jsonschema_rs.Draft202012Validator(
        schema, offline=True, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions()
    )
    inner = list(schemas_of(schema))
    patterns: set[str] = {each["pattern"] for each in inner if "pattern" in each}
    patterns.update(*(each.get("patternProperties", ()) for each in inner))
    sizes = {each: size(unchecked_tree(each)) for each in patterns}
    branches = 1 + sum(len(each.get(keyword, ())) for each in inner for keyword in ("anyOf", "enum", "required"))
    branches += 2 * sum("uniqueItems" in each for each in inner)  # compares the elements of a list: a step a character
    forks = any(sum(not _SCALARS.issuperset(_types(each)) for each in one.get("anyOf", ())) > 1 for one in inner)
    return _Check(form["type"], schema, validator.is_valid, sizes, branches, forks, any(map(checked_alone, inner)))


_SCALARS = frozenset(("null", "boolean", "integer", "number", "string"))


def _types(schema: Mapping[str, Any]) -> Iterable[str]:
    """The types of the values of an enforced schema, "any" where it names none."""
    if "enum" in schema:
        return ()
    kinds: str | list[str] = schema.get("type", "any")
    return [kinds] if isinstance(kinds, str) else kinds


def _ends_early(schema: Mapping[str, Any], value: list[Any] | dict[str, Any]) -> bool:
    """Whether a validator looks at nothing inside a value: it checks types, counts and required names before."""
    kind = "array" if isinstance(value, list) else "object"
    if kind not in schema.get("type", kind) or any(name not in value for name in schema.get("required", ())):
        return True
    return kind == "array" and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))


class _TakesLong(Exception):
    """A check has more than MAX_STEPS, or too many to be counted."""


class _Steps:
    """Counts the steps that a validator takes at most. Each pair of schema and value is counted once."""

    def __init__(self, definitions: Mapping[str, Any], pattern_sizes: Mapping[str, int]) -> None:
        self._definitions = definitions
        self._pattern_sizes = pattern_sizes
        self._known: dict[tuple[int, int], int] = {}
        self._counted = 0

    def count(self, schema: Any, value: Any) -> int:
        """The steps of a value. Raises _TakesLong, and RecursionError where it is too deep to say."""
        if isinstance(schema, bool):
            return 1
        key = (id(schema), id(value))
        self._counted += 1
        if self._counted > MAX_COUNTED:
            raise _TakesLong
        if key not in self._known:
            self._known[key] = steps = 1 + self._inside(schema, value)
            if steps > MAX_STEPS:
                raise _TakesLong
        return self._known[key]

    def _inside(self, schema: Mapping[str, Any], value: Any) -> int:
        if "$ref" in schema:
            return self.count(self._definitions[schema["$ref"].rpartition("/")[2]], value)
        steps = len(schema.get("required", ())) + len(schema.get("enum", ()))
        for each in schema.get("anyOf", ()):
            steps += self.count(each, value)
        if isinstance(value, str):
            steps += self._matching(schema["pattern"], value) if "pattern" in schema else 0
        elif isinstance(value, list) and not _ends_early(schema, items := cast("list[Any]", value)):
            steps += len(msgspec.json.encode(items)) if "uniqueItems" in schema else 0
            first = schema.get("prefixItems", ())
            for place, each in enumerate(items):
                steps += self.count(first[place] if place < len(first) else schema.get("items", True), each)
        elif isinstance(value, dict) and not _ends_early(schema, members := cast("dict[str, Any]", value)):
            for name, each in members.items():
                steps += self._member(schema, name, each)
        return steps

    def _member(self, schema: Mapping[str, Any], name: str, value: Any) -> int:
        steps = self.count(schema.get("propertyNames", True), name)
        properties = schema.get("properties", {})
        if name in properties:
            return steps + self.count(properties[name], value)
        for pattern, each in schema.get("patternProperties", {}).items():
            steps += self._matching(pattern, name) + self.count(each, value)
        return steps + self.count(schema.get("additionalProperties", True), value)

    def _matching(self, pattern: str, text: str) -> int:
        return self._pattern_sizes[pattern] * len(text) // PATTERN_A_STEP
