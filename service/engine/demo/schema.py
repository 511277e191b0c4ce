"""The shape that a JSON schema asks for, from the `# Response Formats` section of a developer message.

It reads what answers commonly need: types, properties, items, choices, references. A keyword that it doesn't
know is passed over, so a value made from the shape may miss it; the service validates what an engine says.
"""

import json
from functools import lru_cache
from typing import cast

from service.engine.demo.shapes import (
    DEPTH,
    Anything,
    Boolean,
    Either,
    Field,
    ListOf,
    Nothing,
    Number,
    OneOf,
    Record,
    Shape,
    Text,
)

PARTS = 1000
"""How many parts of a schema are read; the rest has the shape Anything."""

SECTION = "# Response Formats"
"""The heading under which the prompt holds the schema."""


@lru_cache(maxsize=32)
def response_shape(developer: str) -> Shape | None:
    """The shape that the developer message demands of the final answer, or None where it demands none."""
    _, found, section = developer.rpartition(SECTION)
    if not found:
        return None
    lines = [line for line in section.splitlines() if line.startswith("{")]
    try:
        schema: object = json.loads(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return Record()
    return shape_of(schema)


def shape_of(schema: object) -> Shape:
    """The shape of a JSON schema."""
    return _Schema(schema).shape(schema, DEPTH)


class _Schema:
    """A schema, the root that its references start from, and how many of its parts may still be read."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = PARTS
        self._open: list[str] = []

    def shape(self, schema: object, depth: int) -> Shape:
        """The shape of a part of the schema. Inside itself, past `depth` or PARTS, anything goes."""
        self._left -= 1
        if not isinstance(schema, dict) or depth == 0 or self._left < 0:
            return Anything()
        part = cast(dict[str, object], schema)
        reference = part.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, depth)
        if "const" in part:
            return OneOf((part["const"],))
        if isinstance(part.get("enum"), list):
            return OneOf(tuple(cast(list[object], part["enum"])))
        for keyword in ("anyOf", "oneOf", "allOf"):
            if isinstance(part.get(keyword), list) and part[keyword]:
                return Either(tuple(self.shape(o, depth - 1) for o in cast(list[object], part[keyword])))
        kinds = part.get("type", "object" if "properties" in part else None)
        if isinstance(kinds, list):
            return Either(tuple(self._typed(kind, part, depth) for kind in cast(list[object], kinds)))
        return self._typed(kinds, part, depth)

    def _typed(self, kind: object, part: dict[str, object], depth: int) -> Shape:
        least = part.get("minimum")
        if kind == "object":
            return self._record(part, depth)
        if kind == "array":
            item = self.shape(part.get("items"), depth - 1)
            items = part.get("minItems", 0 if isinstance(item, Anything) else 1)
            return ListOf(item, items if isinstance(items, int) else 1)
        simple: dict[object, Shape] = {
            "string": Text(),
            "number": Number(least if isinstance(least, int | float) else None),
            "integer": Number(least if isinstance(least, int | float) else None, whole=True),
            "boolean": Boolean(),
            "null": Nothing(),
        }
        return simple.get(kind, Anything())

    def _record(self, part: dict[str, object], depth: int) -> Record:
        properties = cast(dict[str, object], part.get("properties") or {})
        required = cast(list[object], part.get("required") or [])
        return Record(
            tuple(Field(name, self.shape(inner, depth - 1), name in required) for name, inner in properties.items())
        )

    def _referred(self, reference: str, depth: int) -> Shape:
        if reference in self._open:
            return Anything()
        self._open.append(reference)
        shape = self.shape(self._resolve(reference), depth - 1)
        self._open.pop()
        return shape

    def _resolve(self, reference: str) -> object:
        """What `#/$defs/name` points to; None where it points nowhere."""
        place = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else []:
            place = cast(dict[str, object], place).get(step) if isinstance(place, dict) else None
        return place
