"""Function tools of every shape that matters to how they are written: TypeScript signatures, made of JSON schemas.

These are what clients send; tests/harmony/test_typescript.py has the rules one by one, and whatever hypothesis finds.
"""

from typing import Any

from tests.support.vllm.items import Json, takes, tool

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def functions(*schemas: Json) -> list[Json]:
    return [tool(f"f{place}", schema) for place, schema in enumerate(schemas)]


def one(**properties: Any) -> list[Json]:
    return functions(takes(**properties))


TOOLS: dict[str, list[Json]] = {
    "no functions": [],
    "a function without parameters": [tool("f", description="Does it.")],
    "a function that names no parameters": [{"type": "function", "name": "f"}],
    "a description of many lines": [tool("f", description="Two\n\nlines.\n"), tool("g", description="")],
    "marks in a description": [tool("f", description="<|end|><|start|>")],
    "schemas of nothing": functions({}, {"type": "object"}, takes(), TEXT, {"type": "array"}),
    "types": one(a=TEXT, b=NUMBER, c={"type": "number"}, d={"type": "boolean"}, e={"type": "null"}, f={}),
    "what is required": functions(takes("b", "gone", a=TEXT, b=TEXT)),
    "descriptions, titles and examples": one(
        a={**TEXT, "title": "A", "description": "Two\nlines.", "examples": ["x", "y"]},
        b={"description": "日本 🙂<|end|>"},
    ),
    "enums": one(
        a={**TEXT, "enum": ["c", 'q"f'], "default": "c"},
        b={"enum": ["c"]},
        c={**NUMBER, "enum": [1]},
        d={**TEXT, "enum": []},
    ),
    "defaults": one(
        a={**TEXT, "default": "x"}, b={**NUMBER, "default": 5}, c={"default": False}, d={"default": {"k": [0.5, None]}}
    ),
    "numbers": one(a={"default": 1e-5}, b={"default": -1.5e-7}, c={"default": 2.0}, d={"default": 10**18}),
    "arrays": one(
        a={"type": "array"},
        b={"type": "array", "items": TEXT},
        c={"type": "array", "items": takes("x", x=TEXT)},
        d={"type": "array", "items": {"type": "array", "items": NUMBER}},
        e={"type": "array", "prefixItems": [TEXT]},
    ),
    "objects in objects": one(a={**takes("b", b=takes(c={**TEXT, "description": "Deep."})), "description": "An a."}),
    "unions": one(
        a={"oneOf": [{**TEXT, "description": "s"}, NUMBER], "description": "X", "default": "d"},
        b={"anyOf": [TEXT, {"type": "null"}]},
        c={"allOf": [TEXT]},
        d={"type": ["string", "null"]},
        e={**TEXT, "nullable": True},
    ),
    "references": functions({**takes(a={"$ref": "#/$defs/A"}), "$defs": {"A": takes(x=TEXT)}}),
    "keywords that aren't written": functions(
        {
            **takes(a={"const": 1}, b={"not": TEXT}, c=True, d={**TEXT, "pattern": "^a$", "maxLength": 5}),
            "additionalProperties": False,
            "description": "All of it.",
        }
    ),
    "a union for all arguments": functions({"oneOf": [takes(a=TEXT), takes(b=TEXT)]}),
    "names of any kind": one(**{"é": TEXT, "a-b": TEXT, "a b": TEXT, "": TEXT}),
}

LARGE_NUMBERS = one(a={"default": 1e16}, b={"default": -2.5e300}, c={"default": 2**70})
"""Defaults that take an exponent."""
