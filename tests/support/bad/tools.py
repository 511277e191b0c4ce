"""Tools of the service and of the client, choices, grammars and formats of the answer that no client should send."""

from typing import Any

from tests.support.bad.table import (
    FUNCTION,
    MISSING,
    STRANGE,
    TYPE,
    UNSUPPORTED,
    VALUE,
    Bad,
    Table,
    chosen,
    create,
    form,
    grammar,
    items,
    schema,
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
    "a tool of no type": tools(MISSING, "tools[0].type", "function", {"name": "f"}),
    "a tool of an unknown type": tools(VALUE, "tools[0].type", "telepathy", {"type": "telepathy"}),
    "a name with spaces": tools(VALUE, "tools[0].name", "a b", {**FUNCTION, "name": "a b"}),
    "a name with control tokens": tools(VALUE, "tools[0].name", "<|end|>", {**FUNCTION, "name": "<|end|>"}),
    "a function none waits for": tools(UNSUPPORTED, "tools[0].async", "Leave it out", {**FUNCTION, "async": True}),
    "a function for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**FUNCTION, "allowed_callers": ["programmatic"]}
    ),
    "two tools of one name": tools(VALUE, "tools[1].name", "same name", FUNCTION, FUNCTION),
    "too many tools": tools(VALUE, "tools", "513", *({**FUNCTION, "name": f"f{n}"} for n in range(513))),
    "too many hosted tools": tools(VALUE, "tools", "513", *[SEARCH] * 513),
    "parameters as deep as a well": tools(VALUE, "tools[0].parameters", "64", {**FUNCTION, "parameters": well(65)}),
    "wide parameters": tools(VALUE, "tools[0].parameters", "8192", {**FUNCTION, "parameters": {"enum": [0] * 8192}}),
    "strict parameters that refer elsewhere": tools(
        VALUE, "tools[0].parameters.$ref", "https://", strict({"$ref": "https://example.org/a.json"})
    ),
    "a namespace in a namespace": tools(VALUE, "tools[0].tools[0].type", "namespace", inside(SPACE)),
    "two namesakes in two parts of a namespace": tools(VALUE, "tools[1].tools[0].name", "same name", SPACE, SPACE),
    "too many tools in namespaces": tools(
        VALUE,
        "tools",
        "512",
        *({**inside(*({**FUNCTION, "name": f"f{n}"} for n in range(257))), "name": name} for name in "ab"),
    ),
}

CHOICES: Table = {
    "an unknown choice": create("tool_choice", "maybe", VALUE, "none, auto, required"),
    "a call that is required without tools": create("tool_choice", "required", VALUE, "no tool to call"),
    "a call that is required of hosted tools": chosen(VALUE, "tool_choice", "can't run it", "required", SEARCH),
    "choice of a hosted tool": chosen(UNSUPPORTED, "tool_choice.type", "can't run it", {"type": "web_search"}, SEARCH),
    "a function that isn't declared": chosen(
        VALUE, "tool_choice.name", "declares no function", {"type": "function", "name": "g"}, FUNCTION
    ),
    "chat's form of a choice": chosen(
        STRANGE, "tool_choice.function", "function", {"type": "function", "function": {"name": "f"}}, FUNCTION
    ),
    "a function of two namespaces": chosen(
        VALUE, "tool_choice.name", "Several", {"type": "function", "name": "f"}, SPACE, {**SPACE, "name": "m"}
    ),
    "none at all": chosen(VALUE, "tool_choice.tools", "at least one", {"type": "allowed_tools", "tools": []}, FUNCTION),
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
    "a grammar without a start": grammar("invalid_grammar", "start", 'a: "b"'),
    "a grammar that is none": grammar("invalid_grammar", "can't be read", "start: ((("),
    "a grammar that imports files": grammar("invalid_grammar", "%import", "%import secrets.A\nstart: A"),
    "a grammar that never ends": grammar("invalid_grammar", "no text matches", 'start: "a" start'),
    "a grammar that looks around": grammar("invalid_grammar", "Lookaround", "start: /a(?=b)/"),
    "a grammar that repeats too often": grammar("invalid_grammar", "256", 'start: "a"~1000'),
    "a grammar of a book's length": grammar("invalid_grammar", "at most", "// " + "x" * 32_768 + '\nstart: "a"'),
    "a grammar of counts inside counts": grammar("invalid_grammar", "Counts inside", 'start: (("a"~100)~100)~100'),
    "a grammar whose templates never end": grammar("invalid_grammar", "more than", 'a{x}: a{a{x}}\nstart: a{"b"}'),
    "a regex that is broken": grammar("invalid_pattern", "malformed", "(", "regex"),
    "a regex that refers back": grammar("invalid_pattern", "references", r"(a)\1", "regex"),
    "a regex with flags": grammar("invalid_pattern", "Flags", "(?i)a", "regex"),
    "a regex that repeats too often": grammar("invalid_pattern", "more than", "a{5000}", "regex"),
    "a regex of a book's length": grammar("invalid_pattern", "2048", "a" * 2049, "regex"),
    "a regex as deep as a well": grammar("invalid_pattern", "too deeply", "(" * 400 + ")" * 400, "regex"),
}


# --- tools that the client runs ---

SHELL: dict[str, Any] = {"type": "shell"}
PATCH: dict[str, Any] = {"type": "apply_patch"}
CLIENT_SEARCH: dict[str, Any] = {"type": "tool_search", "execution": "client"}
SKILL = {"name": "a", "description": "b", "path": "/c"}
RAN: dict[str, Any] = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
PATCHED: dict[str, Any] = {
    "type": "apply_patch_call",
    "call_id": "c",
    "operation": {"type": "delete_file", "path": "a"},
}
SEARCHED: dict[str, Any] = {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "x"}}
FOUND: dict[str, Any] = {"type": "tool_search_output", "call_id": "c", "tools": []}
DEFERRED = {**FUNCTION, "defer_loading": True}


def local(**members: Any) -> dict[str, Any]:
    """A shell on the client's machine."""
    return {"type": "shell", "environment": {"type": "local", **members}}


def ran(code: str, member: str, words: str, **action: Any) -> Bad:
    """A shell's call with this action."""
    return items(code, f"input[0].action{member}", words, {**RAN, "action": {"commands": ["ls"], **action}})


def printed(code: str, member: str, words: str, *output: Any) -> Bad:
    given = {"type": "shell_call_output", "call_id": "c", "output": list(output)}
    return items(code, f"input[1].output{member}", words, RAN, given)


def patched(code: str, member: str, words: str, operation: Any) -> Bad:
    where = f"input[0].operation.{member}" if member else "input[0].operation"
    return items(code, where, words, {**PATCHED, "operation": operation})


def found(code: str | None, where: str, words: str, *values: Any) -> Bad:
    """A search that found these tools."""
    return items(code, where, words, SEARCHED, {**FOUND, "tools": list(values)}, tools=[CLIENT_SEARCH])


DECLARED: Table = {
    "a shell nowhere": tools(MISSING, "tools[0].environment.type", "local", {**SHELL, "environment": {}}),
    "a lunar shell": tools(VALUE, "tools[0].environment.type", "moon", {**SHELL, "environment": {"type": "moon"}}),
    "65 skills": tools(VALUE, "tools[0].environment.skills", "64", local(skills=[SKILL] * 65)),
    "a shell and a local shell": tools(VALUE, "tools[1].name", "same name", SHELL, {"type": "local_shell"}),
    "a shell that is not declared": chosen(VALUE, "tool_choice.type", "Declare", SHELL, FUNCTION),
    "a shell, chosen as a function": chosen(
        VALUE, "tool_choice.type", "shell", {"type": "function", "name": "exec"}, SHELL
    ),
    "a function that is to be loaded": chosen(
        VALUE, "tool_choice.name", "defer_loading", {"type": "function", "name": "f"}, DEFERRED, CLIENT_SEARCH
    ),
}

SENT: Table = {
    "a shell's call without its id": items(
        *(MISSING, "input[0].call_id", "call_id"), {"type": "shell_call", "action": {"commands": ["ls"]}}
    ),
    "a number for a command": ran(TYPE, ".commands[0]", "a string", commands=[5]),
    "too many commands": ran(VALUE, ".commands", "1024", commands=["ls"] * 1025),
    "a shell's call without an output": items(None, "input", "No tool output found", RAN),
    "a number for what a command printed": printed(TYPE, "[0].stdout", "a string", {"stdout": 5}),
    "an output of a local shell without its call": items(
        MISSING, "input[0].id", "call_id", {"type": "local_shell_call_output", "output": "x"}
    ),
    "an unknown operation": patched(VALUE, "type", "burn_file", {"type": "burn_file", "path": "a"}),
    "a path of two lines": patched(VALUE, "path", "a\\nb", {"type": "delete_file", "path": "a\nb"}),
    "a client's search without its id": items(
        *(MISSING, "input[0].call_id", "client"), {**SEARCHED, "call_id": None, "execution": "client"}
    ),
    "what no search found": items(None, "input", "No tool call found for tool search output with call_id", FOUND),
    "a found tool of an unknown type": found(VALUE, "input[1].tools[0].type", "telepathy", {"type": "telepathy"}),
    "more found tools than there is room for": found(
        VALUE, "tools", "at most 512", *({**FUNCTION, "name": f"f{number}"} for number in range(512))
    ),
}


# --- formats of the answer ---

NAMED = {"type": "json_schema", "name": "a", "schema": {}}

FORMATS: Table = {
    "a list for text": create("text", [], TYPE, "an object"),
    "a format without a type": form(MISSING, "type", "json_schema", {}),
    "a format of nobody": form(VALUE, "type", "yaml", {"type": "yaml"}),
    "a schema without a name": form(MISSING, "name", "name", {"type": "json_schema", "schema": {}}),
    "a schema with a wild name": form(VALUE, "name", "a b", {**NAMED, "name": "a b"}),
    "a schema of a book's length": form(VALUE, "", "262144", {**NAMED, "schema": {"title": "x" * 262_144}}),
}

SCHEMAS: Table = {
    "not": schema("not", "what is allowed", {"not": {"type": "string"}}),
    "a reference to nothing": schema("$ref", "#/$defs/a", {"$ref": "#/$defs/a"}, VALUE),
    "a reference into the net": schema("$ref", "same schema", {"$ref": "https://example.org"}, VALUE),
    "a circular reference": schema("properties.a.$ref", "to itself", {"properties": {"a": {"$ref": "#/properties/a"}}}),
    "a reference beside a type": schema("type", "beside '$ref'", {"type": "object", "$ref": "#/$defs/a"}),
    "two schemas at once": schema("allOf", "Merge", {"allOf": [{"type": "object"}, {"type": "object"}]}),
    "schemas that may both match": schema("oneOf", "anyOf", {"oneOf": [{"type": "string"}, {"type": "string"}]}),
    "false": schema("properties.a", "Nothing matches", {"properties": {"a": False}}),
    "a schema that is a number": schema("properties.a", "an object", {"properties": {"a": 5}}, TYPE),
    "an unknown type": schema("type", "float", {"type": "float"}, VALUE),
    "too many values": schema("enum", "2048", {"enum": list(range(2049))}, VALUE),
    "forbidden": schema("required", "Declare it", {"type": "object", "required": ["a"], "additionalProperties": False}),
    "more required than allowed": schema(
        "maxProperties", "required", {"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "maxProperties": 1}
    ),
    "names by a rule beside properties": schema(
        "patternProperties", "properties", {"properties": {"a": {}}, "patternProperties": {"b": {}}}
    ),
    "names by two rules": schema("patternProperties", "one pattern", {"patternProperties": {"a": {}, "b": {}}}),
    "a pattern that looks around": schema("pattern", "Lookaround", {"pattern": "(?=a)"}, "invalid_pattern"),
    "a pattern that is too long": schema("pattern", "lengths", {"pattern": "a{6}", "maxLength": 5}, "invalid_pattern"),
    "a pattern that is a number": schema("pattern", "a string", {"pattern": 5}, TYPE),
    "a format beside a pattern": schema("format", "pattern", {"format": "date", "pattern": "^2"}),
    "a length beyond reason": schema("maxLength", "integers from 0", {"maxLength": 10**18}, VALUE),
    "a length beyond numbers": schema("minLength", "integers from 0", {"minLength": 10**400}, VALUE),
    "a longest below the shortest": schema("maxLength", "less than", {"minLength": 5, "maxLength": 4}, VALUE),
    "a bound of many decimals": schema("minimum", "decimals", {"type": "number", "minimum": 0.12345678}, VALUE),
    "nothing between the bounds": schema("", "between", {"type": "integer", "minimum": 2, "maximum": 1}),
    "multiples of nothing": schema("multipleOf", "above 0", {"type": "number", "multipleOf": 0}, VALUE),
    "multiples beyond the bounds": schema(
        "multipleOf", "No multiple", {"type": "number", "multipleOf": 5, "minimum": 1, "maximum": 2}
    ),
    "fewer elements than there must be": schema(
        "minItems", "At most 1", {"prefixItems": [{}], "items": False, "minItems": 2}
    ),
}
