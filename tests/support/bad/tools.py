"""Tools, choices among them, and grammars that no client should send, and what it is told."""

from typing import Any

from tests.support.bad.table import (
    CUSTOM,
    FUNCTION,
    MISSING,
    STRANGE,
    TYPE,
    UNSUPPORTED,
    VALUE,
    Table,
    chosen,
    create,
    grammar,
    tools,
)

SPACE: dict[str, Any] = {"type": "namespace", "name": "n", "tools": [FUNCTION]}
SEARCH = {"type": "web_search"}


def inside(*values: Any) -> dict[str, Any]:
    return {**SPACE, "tools": list(values)}


def strict(parameters: Any) -> dict[str, Any]:
    """A strict function with these parameters."""
    return {**FUNCTION, "strict": True, "parameters": parameters}


def well(depth: int) -> dict[str, Any]:
    return {"properties": well(depth - 1)} if depth else {}


TOOLS: Table = {
    "an object for tools": create("tools", {}, TYPE, "an array"),
    "a text for tools": create("tools", "f", TYPE, "an array"),
    "a tool that is a text": tools(TYPE, "tools[0]", "an object", "f"),
    "a function with a colour": tools(STRANGE, "tools[0].colour", "colour", {**FUNCTION, "colour": "red"}),
    "a tool that is null": tools(TYPE, "tools[0]", "an object", None),
    "a tool of no type": tools(MISSING, "tools[0].type", "function", {"name": "f"}),
    "a number for a tool's type": tools(TYPE, "tools[0].type", "a string", {"type": 5}),
    "a tool of an unknown type": tools(VALUE, "tools[0].type", "telepathy", {"type": "telepathy"}),
    "a tool without a name": tools(MISSING, "tools[0].name", "name", {"type": "function"}),
    "a number for a name": tools(TYPE, "tools[0].name", "a string", {**FUNCTION, "name": 5}),
    "a name that is empty": tools(VALUE, "tools[0].name", "64", {**FUNCTION, "name": ""}),
    "a name with spaces": tools(VALUE, "tools[0].name", "a b", {**FUNCTION, "name": "a b"}),
    "a name with a dot": tools(VALUE, "tools[0].name", "a.b", {**FUNCTION, "name": "a.b"}),
    "a name in Greek": tools(VALUE, "tools[0].name", "λ", {**FUNCTION, "name": "λ"}),
    "a name of 65 letters": tools(VALUE, "tools[0].name", "64", {**FUNCTION, "name": "f" * 65}),
    "a name with control tokens": tools(VALUE, "tools[0].name", "<|end|>", {**FUNCTION, "name": "<|end|>"}),
    "a list for parameters": tools(TYPE, "tools[0].parameters", "an object", {**FUNCTION, "parameters": []}),
    "a number for a description": tools(TYPE, "tools[0].description", "a string", {**FUNCTION, "description": 5}),
    "a text for strict": tools(TYPE, "tools[0].strict", "a boolean", {**FUNCTION, "strict": "yes"}),
    "an unknown key of a tool": tools(STRANGE, "tools[0].speed", "speed", {**FUNCTION, "speed": 1}),
    "a tool as in chat": tools(STRANGE, "tools[0].function", "function", {"type": "function", "function": FUNCTION}),
    "a function none waits for": tools(UNSUPPORTED, "tools[0].async", "Leave it out", {**FUNCTION, "async": True}),
    "a function for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**FUNCTION, "allowed_callers": ["programmatic"]}
    ),
    "a caller of nobody": tools(
        VALUE, "tools[0].allowed_callers[0]", "magic", {**FUNCTION, "allowed_callers": ["magic"]}
    ),
    "two tools of one name": tools(VALUE, "tools[1].name", "same name", FUNCTION, FUNCTION),
    "two kinds of tools of one name": tools(VALUE, "tools[1].name", "same name", FUNCTION, {**CUSTOM, "name": "f"}),
    "too many tools": tools(VALUE, "tools", "129", *({**FUNCTION, "name": f"f{n}"} for n in range(129))),
    "too many hosted tools": tools(VALUE, "tools", "129", *[SEARCH] * 129),
    "parameters as deep as a well": tools(VALUE, "tools[0].parameters", "64", {**FUNCTION, "parameters": well(65)}),
    "wide parameters": tools(VALUE, "tools[0].parameters", "8192", {**FUNCTION, "parameters": {"enum": [0] * 8192}}),
    "a hosted tool as deep as a well": tools(VALUE, "tools[0]", "64", {**SEARCH, "filters": well(65)}),
    "a wide hosted tool": tools(VALUE, "tools[0]", "8192", {**SEARCH, "filters": {"allowed_domains": ["a"] * 8192}}),
    "strict parameters with a condition": tools(
        "invalid_json_schema", "tools[0].parameters.if", "anyOf", strict({"type": "object", "if": {}, "then": {}})
    ),
    "strict parameters with a negation": tools(
        "invalid_json_schema",
        "tools[0].parameters.properties.a.not",
        "'not'",
        strict({"properties": {"a": {"not": {}}}}),
    ),
    "strict parameters that refer elsewhere": tools(
        VALUE, "tools[0].parameters.$ref", "https://", strict({"$ref": "https://example.org/a.json"})
    ),
    "strict parameters of a strange type": tools(VALUE, "tools[0].parameters.type", "float", strict({"type": "float"})),
    # custom tools
    "a custom tool without a name": tools(MISSING, "tools[0].name", "name", {"type": "custom"}),
    "a custom tool with parameters": tools(STRANGE, "tools[0].parameters", "parameters", {**CUSTOM, "parameters": {}}),
    "a format that is a text": tools(TYPE, "tools[0].format", "an object", {**CUSTOM, "format": "lark"}),
    "a format of no type": tools(MISSING, "tools[0].format.type", "type", {**CUSTOM, "format": {"syntax": "lark"}}),
    "a format of an unknown type": tools(VALUE, "tools[0].format.type", "xml", {**CUSTOM, "format": {"type": "xml"}}),
    "a text format with a grammar": tools(
        STRANGE, "tools[0].format.syntax", "syntax", {**CUSTOM, "format": {"type": "text", "syntax": "lark"}}
    ),
    "a grammar without a definition": tools(
        MISSING, "tools[0].format.definition", "definition", {**CUSTOM, "format": {"type": "grammar", "syntax": "lark"}}
    ),
    "a grammar of an unknown syntax": tools(
        VALUE,
        "tools[0].format.syntax",
        "bnf",
        {**CUSTOM, "format": {"type": "grammar", "syntax": "bnf", "definition": "a"}},
    ),
    # namespaces
    "a namespace without a name": tools(MISSING, "tools[0].name", "name", {"type": "namespace"}),
    "a namespace with a wild name": tools(VALUE, "tools[0].name", "a/b", {**SPACE, "name": "a/b"}),
    "a namespace of a number of tools": tools(TYPE, "tools[0].tools", "an array", {**SPACE, "tools": 5}),
    "a namespace in a namespace": tools(VALUE, "tools[0].tools[0].type", "namespace", inside(SPACE)),
    "a hosted tool in a namespace": tools(VALUE, "tools[0].tools[0].type", "web_search", inside(SEARCH)),
    "a tool of no type in a namespace": tools(MISSING, "tools[0].tools[0].type", "custom", inside({"name": "f"})),
    "two namesakes in a namespace": tools(VALUE, "tools[0].tools[1].name", "same name", inside(FUNCTION, FUNCTION)),
    "two namesakes in two parts of a namespace": tools(VALUE, "tools[1].tools[0].name", "same name", SPACE, SPACE),
    "a function twice, once in the namespace of functions": tools(
        VALUE, "tools[1].tools[0].name", "same name", FUNCTION, {**SPACE, "name": "functions"}
    ),
    "too many tools in namespaces": tools(
        VALUE,
        "tools",
        "128",
        *({**inside(*({**FUNCTION, "name": f"f{n}"} for n in range(65))), "name": name} for name in "ab"),
    ),
    "an unknown key of a namespace": tools(STRANGE, "tools[0].strict", "strict", {**SPACE, "strict": True}),
}

CHOICES: Table = {
    "a choice of a number": create("tool_choice", 5, TYPE, "a string"),
    "a choice of a list": create("tool_choice", ["auto"], TYPE, "an object"),
    "a choice of a number's type": chosen(TYPE, "tool_choice.type", "a string", {"type": 5}, FUNCTION),
    "an allowed tool that is a number": chosen(
        TYPE, "tool_choice.tools[0]", "an object", {"type": "allowed_tools", "tools": [5]}, FUNCTION
    ),
    "an unknown choice": create("tool_choice", "maybe", VALUE, "none, auto, required"),
    "a call that is required without tools": create("tool_choice", "required", VALUE, "no tool to call"),
    "a call that is required of hosted tools": chosen(VALUE, "tool_choice", "can't run it", "required", SEARCH),
    "a choice of no type": chosen(MISSING, "tool_choice.type", "allowed_tools", {"name": "f"}, FUNCTION),
    "a choice of an unknown type": chosen(VALUE, "tool_choice.type", "magic", {"type": "magic"}, FUNCTION),
    "choice of a hosted tool": chosen(UNSUPPORTED, "tool_choice.type", "can't run it", {"type": "web_search"}, SEARCH),
    "a function that isn't declared": chosen(
        VALUE, "tool_choice.name", "declares no function", {"type": "function", "name": "g"}, FUNCTION
    ),
    "a function of no name": chosen(MISSING, "tool_choice.name", "name", {"type": "function"}, FUNCTION),
    "chat's form of a choice": chosen(
        STRANGE, "tool_choice.function", "function", {"type": "function", "function": {"name": "f"}}, FUNCTION
    ),
    "another kind of tool": chosen(VALUE, "tool_choice.type", "'function'", {"type": "custom", "name": "f"}, FUNCTION),
    "a function of another namespace": chosen(
        VALUE, "tool_choice.name", "m.f", {"type": "function", "name": "f", "namespace": "m"}, SPACE
    ),
    "a function of two namespaces": chosen(
        VALUE, "tool_choice.name", "Several", {"type": "function", "name": "f"}, SPACE, {**SPACE, "name": "m"}
    ),
    "none at all": chosen(VALUE, "tool_choice.tools", "at least one", {"type": "allowed_tools", "tools": []}, FUNCTION),
    "a text of tools": chosen(TYPE, "tool_choice.tools", "an array", {"type": "allowed_tools", "tools": "f"}, FUNCTION),
    "an unknown mode of allowed tools": chosen(
        VALUE,
        "tool_choice.mode",
        "always",
        {"type": "allowed_tools", "mode": "always", "tools": [{"type": "function", "name": "f"}]},
        FUNCTION,
    ),
    "an allowed tool that isn't declared": chosen(
        VALUE,
        "tool_choice.tools[0].name",
        "declares no",
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        FUNCTION,
    ),
    "an allowed namespace that isn't declared": chosen(
        VALUE,
        "tool_choice.tools[0].name",
        "namespace",
        {"type": "allowed_tools", "tools": [{"type": "namespace", "name": "m"}]},
        FUNCTION,
    ),
    "an allowed hosted tool that isn't declared": chosen(
        VALUE,
        "tool_choice.tools[0].type",
        "Declare",
        {"type": "allowed_tools", "tools": [{"type": "mcp", "server_label": "a"}]},
        FUNCTION,
    ),
    "an allowed tool of no type": chosen(
        MISSING, "tool_choice.tools[0].type", "function", {"type": "allowed_tools", "tools": [{"name": "f"}]}, FUNCTION
    ),
    "a call that is required of allowed tools that can't be called": chosen(
        VALUE,
        "tool_choice.tools",
        "can't run it",
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        FUNCTION,
        SEARCH,
    ),
    "too many allowed tools": chosen(
        VALUE,
        "tool_choice.tools",
        "128",
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}] * 129},
        FUNCTION,
    ),
}

GRAMMARS: Table = {
    "an empty grammar": grammar(VALUE, "the grammar itself", "  "),
    "a grammar that is a list": grammar(TYPE, "a string", []),
    "a grammar without a start": grammar("invalid_grammar", "start", 'a: "b"'),
    "a grammar that is none": grammar("invalid_grammar", "can't be read", "start: ((("),
    "a grammar of rules that aren't there": grammar("invalid_grammar", "can't be read", "start: b"),
    "a grammar that imports files": grammar("invalid_grammar", "%import", "%import secrets.A\nstart: A"),
    "a grammar that declares": grammar("invalid_grammar", "%declare", "%declare A\nstart: A"),
    "a grammar that never ends": grammar("invalid_grammar", "no text matches", 'start: "a" start'),
    "a grammar that looks around": grammar("invalid_grammar", "Lookaround", "start: /a(?=b)/"),
    "a grammar that refers back": grammar("invalid_grammar", "references", r"start: /(a)\1/"),
    "a grammar that ignores case": grammar("invalid_grammar", "flags", "start: /a/i"),
    "a grammar that repeats too often": grammar("invalid_grammar", "256", 'start: "a"~1000'),
    "a grammar of a book's length": grammar("invalid_grammar", "at most", "// " + "x" * 32_768 + '\nstart: "a"'),
    "a grammar of counts inside counts": grammar("invalid_grammar", "Counts inside", 'start: (("a"~100)~100)~100'),
    "a grammar whose templates never end": grammar("invalid_grammar", "more than", 'a{x}: a{a{x}}\nstart: a{"b"}'),
    "a terminal of itself": grammar("invalid_grammar", "itself", 'start: A\nA: A "b"'),
    "a regex of counts inside counts": grammar("invalid_pattern", "Counts inside", "((a{1000}){1000}){1000}", "regex"),
    "an empty regex": grammar(VALUE, "the grammar itself", "", "regex"),
    "a regex that is broken": grammar("invalid_pattern", "malformed", "(", "regex"),
    "a regex that looks around": grammar("invalid_pattern", "Lookaround", "a(?!b)", "regex"),
    "a regex that refers back": grammar("invalid_pattern", "references", r"(a)\1", "regex"),
    "a regex with flags": grammar("invalid_pattern", "Flags", "(?i)a", "regex"),
    "a regex with an anchor inside": grammar("invalid_pattern", "Anchors", "a^b", "regex"),
    "a regex with a boundary of words": grammar("invalid_pattern", "Anchors", r"\bword\b", "regex"),
    "a regex that repeats too often": grammar("invalid_pattern", "more than", "a{5000}", "regex"),
    "a regex of a book's length": grammar("invalid_pattern", "2048", "a" * 2049, "regex"),
    "a regex as deep as a well": grammar("invalid_pattern", "too deeply", "(" * 400 + ")" * 400, "regex"),
}
