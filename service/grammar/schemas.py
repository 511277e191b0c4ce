"""Takes the JSON schemas that can be enforced: those that the engine's grammar follows to the letter.

An engine enforces a schema by masking tokens, and ignores keywords that it doesn't know. So a schema is taken only if
all that the engine lets through is valid. Any other is refused here, before anything is sampled, with the keyword that
can't be enforced. The behaviour of xgrammar 0.2.8 at each keyword was measured against a validator (decision 27). A few
keywords that no engine follows are checked at the end: `engine_part` in schema_values.py leaves them out.

An enforced schema is rewritten into the few keywords that are left: every one beside a type, references by plain names.
Objects without `additionalProperties` have no other members than their properties, and these in their order.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, cast

from service.errors import InvalidRequest, invalid_value
from service.grammar import schema_values as values
from service.grammar.regex import MAX_SIZE, anchor, read_pattern, size

MAX_DEPTH = 32
"""The deepest nesting of schemas; vLLM refuses 64 levels of JSON, two to a schema."""

MAX_SCHEMAS = 4096
"""The most schemas in a schema, references followed once."""

MAX_PATTERNS_CHARS = 4_096
"""The most characters of all patterns of a schema, each counted once: some 20 ms."""

SCHEMAS_A_STEP = 128
"""The schemas that are read before others get a turn: a millisecond or two."""

PATTERN_CHARS_A_SCHEMA = 4
"""The length of a pattern that takes as long to read as another schema."""


def enforced_schema(schema: Any, where: str, *, strict: bool = True) -> Generator[None, None, values.Schema | None]:
    """The schema at the parameter `where`, in the form in which it is enforced; read in steps.

    Where it can't be enforced: None if it isn't `strict`, else raises InvalidRequest with the keyword as its param. A
    schema that isn't `strict` is not checked at the end: nobody asked for such exactness, and the answer would fail.
    """
    reader, alone = _Reader(schema, where), False
    try:
        root = reader.later(schema, where, 0)
        while (following := reader.next()) is not None:
            enforced, each, path, depth = following
            enforced.update(reader.read(each, path, depth))
            alone |= values.checked_alone(enforced)
            if reader.unbroken > SCHEMAS_A_STEP:
                reader.unbroken = 0
                yield
        for check_apart in reader.checks:
            yield
            check_apart()
    except InvalidRequest:
        if strict:
            raise
        return None
    if alone and not strict:  # it has a keyword that no engine follows
        return None
    return {**root, "$defs": reader.definitions} if reader.definitions else root


class _Reader:
    """One schema with its definitions, which are read when something refers to them, each once.

    A schema inside another isn't read at once: it is put on the agenda, as a dict that is filled later. So reading is
    one loop, which may pause between any two schemas. The agenda is a stack, read in the order of the text.
    """

    def __init__(self, root: Any, where: str) -> None:
        self._where = where
        self._references = values.References(root, where)
        self._sorts: dict[int, values.Sort] = {}
        self._schemas = 0
        self._patterns: set[str] = set()
        self._pattern_chars = self._patterns_size = 0
        self._agenda: list[tuple[values.Schema, Any, str, int]] = []
        self._inside: list[tuple[values.Schema, Any, str, int]] = []
        """The schemas inside the one that is being read."""
        self.definitions: values.Schema = {}
        self.checks: list[Callable[[], None]] = []
        """The checks that wait until all is read: whether schemas exclude each other."""
        self.unbroken = 0
        """The amount that was read since the last pause, in schemas."""

    def later(self, schema: Any, path: str, depth: int) -> values.Schema:
        """The enforced form of a schema that stands at `path`, which is filled when its turn comes."""
        self._count(depth)
        enforced: values.Schema = {}
        self._inside.append((enforced, schema, path, depth))
        return enforced

    def next(self) -> tuple[values.Schema, Any, str, int] | None:
        """The next schema of the agenda, behind its enforced form to be filled; None where none is left."""
        if not self._agenda and not self._inside and self._references.waiting:
            name, definition, path = self._references.waiting.pop()
            self.definitions[name] = self.later(definition, path, 0)
        self._agenda += reversed(self._inside)
        self._inside = []
        return self._agenda.pop() if self._agenda else None

    def _count(self, depth: int) -> None:
        self._schemas += 1
        if depth > MAX_DEPTH or self._schemas > MAX_SCHEMAS:
            limits = f"at most {MAX_DEPTH} schemas may be nested, and {MAX_SCHEMAS} be there at all"
            raise invalid_value(self._where, "a schema", f"It is too large: {limits}. Simplify it.")

    def read(self, schema: Any, path: str, depth: int) -> values.Schema:
        """The enforced form of a schema. Raises InvalidRequest."""
        if schema is True:
            return {}
        if schema is False:
            raise values.refusal(path, "Nothing matches 'false'. Leave it out.")
        if not isinstance(schema, dict):
            raise InvalidRequest(
                f"Invalid type for '{path}': expected a schema, an object.", code="invalid_type", param=path
            )
        given = {
            key: value for key, value in cast("values.Schema", schema).items() if value is not None or key == "const"
        }
        self.unbroken += 1 + self._count_patterns(given, path) // PATTERN_CHARS_A_SCHEMA
        for keyword in given:
            if keyword in values.REFUSED:
                raise values.refusal(f"{path}.{keyword}", f"'{keyword}' can't be enforced. {values.REFUSED[keyword]}")
        for keyword in ("$ref", "allOf", "anyOf", "oneOf", "enum", "const"):
            if keyword in given:
                return self._combine(keyword, given, path, depth)
        return self._typed_schema(given, path, depth)

    def _count_patterns(self, given: values.Schema, path: str) -> int:
        """Check the size of the patterns so far; returns the length of this schema's own."""
        before = self._pattern_chars
        named: Any = given.get("patternProperties")
        patterns: list[tuple[str, Any]] = [(f"{path}.pattern", given.get("pattern"))]
        if isinstance(named, dict):
            patterns += [(f"{path}.patternProperties", each) for each in cast("values.Schema", named)]
        for where, each in patterns:
            if not isinstance(each, str):
                continue
            self._pattern_chars += 0 if each in self._patterns else len(each)
            self._patterns.add(each)
            if self._pattern_chars > MAX_PATTERNS_CHARS:
                raise values.refusal(where, f"All patterns together may have {MAX_PATTERNS_CHARS} characters.")
            self._count_size(size(read_pattern(each, where)), where)
        return self._pattern_chars - before

    def _count_size(self, more: int, where: str) -> None:
        self._patterns_size += more
        if self._patterns_size > MAX_SIZE:
            raise values.refusal(where, f"All patterns, with their counts, may come to {MAX_SIZE} characters.")

    def _combine(self, keyword: str, given: values.Schema, path: str, depth: int) -> values.Schema:
        beside = [key for key in given if key in values.COMBINED[keyword]]
        if beside:
            raise values.refusal(
                f"{path}.{beside[0]}",
                f"'{beside[0]}' can't be enforced beside '{keyword}'. Move it into the schemas there.",
            )
        if keyword == "$ref":
            return {"$ref": self._references.name_of(given["$ref"], path)}
        if keyword in ("enum", "const"):
            return values.enumeration(given, path)
        schemas = values.as_list(given[keyword], f"{path}.{keyword}")
        if keyword == "allOf":
            if len(schemas) > 1:
                raise values.refusal(
                    f"{path}.allOf", "'allOf' of several schemas can't be enforced. Merge them into one."
                )
            self._count(depth + 1)
            return self.read(schemas[0], f"{path}.allOf[0]", depth + 1)
        if "type" in given:
            schemas = [values.narrow(each, given["type"], path) for each in schemas]
        enforced = self._all(schemas, f"{path}.{keyword}", depth)
        if keyword == "oneOf":
            self.checks.append(partial(self._check_apart, enforced, path))
        return {"anyOf": enforced}

    def _all(self, schemas: Iterable[Any], path: str, depth: int) -> list[values.Schema]:
        """The enforced forms of the list of schemas at `path`."""
        return [self.later(each, f"{path}[{place}]", depth + 1) for place, each in enumerate(schemas)]

    def _check_apart(self, enforced: Sequence[values.Schema], path: str) -> None:
        if not values.disjoint([self._sort(each) for each in enforced]):
            raise values.refusal(
                f"{path}.oneOf",
                "'oneOf' can be enforced only if the schemas exclude each other, by their type or by a required "
                "property with different constants. Use 'anyOf'.",
            )

    def _sort(self, enforced: values.Schema) -> values.Sort:
        """The sort of an enforced schema, or of the one that it refers to: found once, as many refer to the same."""
        while "$ref" in enforced:
            enforced = self.definitions[enforced["$ref"].rpartition("/")[2]]
        if id(enforced) not in self._sorts:
            self._sorts[id(enforced)] = values.sort_of(enforced)
        return self._sorts[id(enforced)]

    def _typed_schema(self, given: values.Schema, path: str, depth: int) -> values.Schema:
        kinds = values.kinds_of(given, path)
        if kinds in (["integer"], ["number"]) and (few := values.multiples(given, path, kinds[0])):
            return {"enum": few}
        enforced: values.Schema = {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}
        if "object" in kinds:
            enforced |= self._object(given, path, depth)
        if "array" in kinds:
            enforced |= self._array(given, path, depth)
        if "string" in kinds:
            text, grown = values.string(given, path)
            enforced |= text
            self._count_size(grown, f"{path}.pattern")
        for kind in ("integer", "number"):
            if kind in kinds:
                enforced |= values.number(given, path, kind)
        return enforced

    def _object(self, given: values.Schema, path: str, depth: int) -> values.Schema:
        properties: Any = given.get("properties", {})
        required: Any = given.get("required", [])
        values.check(isinstance(properties, dict), f"{path}.properties", properties, "an object of schemas")
        names_only = isinstance(required, list) and all(isinstance(name, str) for name in cast("list[Any]", required))
        values.check(names_only, f"{path}.required", required, "a list of names")
        required = list(dict.fromkeys(cast("list[str]", required)))
        read: dict[str, values.Schema] = {}
        for name, each in cast("values.Schema", properties).items():
            read[name] = self.later(each, f"{path}.properties.{name[: values.NAME_SHOWN]}", depth + 1)
        enforced: values.Schema = {}
        names = given.get("propertyNames"), given.get("patternProperties")
        others: Any = given.get("additionalProperties", False if given.get("unevaluatedProperties") is False else None)
        if names != (None, None):
            enforced |= self._pattern_names(given, path, depth)
        elif isinstance(others, dict):
            enforced["additionalProperties"] = self.later(others, f"{path}.additionalProperties", depth + 1)
        elif others is not None:
            values.check(isinstance(others, bool), f"{path}.additionalProperties", others, "a schema or a boolean")
            enforced["additionalProperties"] = others
        for name in required:
            if name not in read and (others is False or names != (None, None)):
                raise values.refusal(
                    f"{path}.required", f"'{name}' is required and not among the properties. Declare it."
                )
            read.setdefault(name, enforced.get("additionalProperties", {}) if isinstance(others, dict) else {})
        least, most = values.counts(given, path, "minProperties", "maxProperties")
        if not read and "additionalProperties" not in enforced and names == (None, None):
            enforced["additionalProperties"] = True
        if least > len(read) and least > 1:
            raise values.refusal(
                f"{path}.minProperties",
                "Members of any name can't be counted, as one may be there twice. Declare properties.",
            )
        if most is not None and most < len(required):
            raise values.refusal(f"{path}.maxProperties", f"{len(required)} properties are required.")
        if read:
            enforced["properties"] = read
        if required:
            enforced["required"] = required
        return enforced | values.given_counts(given, "minProperties", "maxProperties")

    def _pattern_names(self, given: values.Schema, path: str, depth: int) -> values.Schema:
        """The schema of an object whose members all have names that follow a rule."""
        keyword = "propertyNames" if "propertyNames" in given else "patternProperties"
        for other in ("properties", "patternProperties", "required"):
            if other != keyword and other in given:
                raise values.refusal(
                    f"{path}.{keyword}", f"'{keyword}' can't be enforced beside '{other}'. Declare each property."
                )
        if keyword == "patternProperties":
            patterns = given[keyword]
            values.check(isinstance(patterns, dict), f"{path}.{keyword}", patterns, "an object of schemas")
            if len(patterns) != 1 or isinstance(given.get("additionalProperties"), dict):
                raise values.refusal(f"{path}.{keyword}", "Only one pattern, and no other keyword, can be enforced.")
            [(pattern, each)] = patterns.items()
            where = f"{path}.{keyword}.{pattern}"
            members = self.later(each, where, depth + 1)
            return {"patternProperties": {anchor(pattern, where): members}, "additionalProperties": False}
        if given.get("additionalProperties", True) is not True:
            raise values.refusal(
                f"{path}.{keyword}",
                f"'{keyword}' can't be enforced together with 'additionalProperties'. Use 'patternProperties'.",
            )
        rule = given[keyword]
        values.check(isinstance(rule, dict), f"{path}.{keyword}", rule, "a schema, an object")
        names = self.later({"type": "string", **rule}, f"{path}.{keyword}", depth + 1)
        return {"propertyNames": names}

    def _array(self, given: values.Schema, path: str, depth: int) -> values.Schema:
        first: Any = given.get("prefixItems")
        items: Any = given.get("items")
        if isinstance(items, list):  # as up to draft 7
            first, items = cast("list[Any]", items), given.get("additionalItems")
        least, most = values.counts(given, path, "minItems", "maxItems")
        unique: Any = given.get("uniqueItems", False)
        values.check(isinstance(unique, bool), f"{path}.uniqueItems", unique, "a boolean")
        enforced: values.Schema = {"uniqueItems": True} if unique else {}
        if first:
            values.check(isinstance(first, list), f"{path}.prefixItems", first, "a list of schemas")
            if most is not None and most < len(first):
                first, items = first[:most], False
            enforced |= {"prefixItems": self._all(first, f"{path}.prefixItems", depth)} if first else {}
        if items is False or (items is None and given.get("unevaluatedItems") is False):
            if least > len(first or ()):
                raise values.refusal(f"{path}.minItems", f"At most {len(first or ())} elements are allowed.")
            return {**enforced, "items": False, **({"minItems": least} if least else {})}
        if items is not None or not first or least > len(first):
            enforced["items"] = self.later(True if items is None else items, f"{path}.items", depth + 1)
        return enforced | values.given_counts(given, "minItems", "maxItems")
