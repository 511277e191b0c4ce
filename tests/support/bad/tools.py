"""Tools of the service and of the client, choices, grammars and formats of the answer that no client should send."""

from typing import Any

from tests.support.bad.table import (
    CUSTOM,
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
    "a function with a colour": tools(STRANGE, "tools[0].colour", "colour", {**FUNCTION, "colour": "red"}),
    "a tool of no type": tools(MISSING, "tools[0].type", "function", {"name": "f"}),
    "a tool of an unknown type": tools(VALUE, "tools[0].type", "telepathy", {"type": "telepathy"}),
    "a tool without a name": tools(MISSING, "tools[0].name", "name", {"type": "function"}),
    "a name with spaces": tools(VALUE, "tools[0].name", "a b", {**FUNCTION, "name": "a b"}),
    "a name with control tokens": tools(VALUE, "tools[0].name", "<|end|>", {**FUNCTION, "name": "<|end|>"}),
    "a function none waits for": tools(UNSUPPORTED, "tools[0].async", "Leave it out", {**FUNCTION, "async": True}),
    "a function for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**FUNCTION, "allowed_callers": ["programmatic"]}
    ),
    "a caller of nobody": tools(
        VALUE, "tools[0].allowed_callers[0]", "magic", {**FUNCTION, "allowed_callers": ["magic"]}
    ),
    "two tools of one name": tools(VALUE, "tools[1].name", "same name", FUNCTION, FUNCTION),
    "too many tools": tools(VALUE, "tools", "129", *({**FUNCTION, "name": f"f{n}"} for n in range(129))),
    "too many hosted tools": tools(VALUE, "tools", "129", *[SEARCH] * 129),
    "parameters as deep as a well": tools(VALUE, "tools[0].parameters", "64", {**FUNCTION, "parameters": well(65)}),
    "wide parameters": tools(VALUE, "tools[0].parameters", "8192", {**FUNCTION, "parameters": {"enum": [0] * 8192}}),
    "strict parameters with a condition": tools(
        "invalid_json_schema", "tools[0].parameters.if", "anyOf", strict({"type": "object", "if": {}, "then": {}})
    ),
    "strict parameters that refer elsewhere": tools(
        VALUE, "tools[0].parameters.$ref", "https://", strict({"$ref": "https://example.org/a.json"})
    ),
    # custom tools
    "a format of an unknown type": tools(VALUE, "tools[0].format.type", "xml", {**CUSTOM, "format": {"type": "xml"}}),
    # namespaces
    "a namespace with a wild name": tools(VALUE, "tools[0].name", "a/b", {**SPACE, "name": "a/b"}),
    "a namespace in a namespace": tools(VALUE, "tools[0].tools[0].type", "namespace", inside(SPACE)),
    "a hosted tool in a namespace": tools(VALUE, "tools[0].tools[0].type", "web_search", inside(SEARCH)),
    "a tool of no type in a namespace": tools(MISSING, "tools[0].tools[0].type", "custom", inside({"name": "f"})),
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
}

CHOICES: Table = {
    "a choice of a number": create("tool_choice", 5, TYPE, "a string"),
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
    "a function of another namespace": chosen(
        VALUE, "tool_choice.name", "m.f", {"type": "function", "name": "f", "namespace": "m"}, SPACE
    ),
    "a function of two namespaces": chosen(
        VALUE, "tool_choice.name", "Several", {"type": "function", "name": "f"}, SPACE, {**SPACE, "name": "m"}
    ),
    "none at all": chosen(VALUE, "tool_choice.tools", "at least one", {"type": "allowed_tools", "tools": []}, FUNCTION),
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
    "a regex that is broken": grammar("invalid_pattern", "malformed", "(", "regex"),
    "a regex that looks around": grammar("invalid_pattern", "Lookaround", "a(?!b)", "regex"),
    "a regex that refers back": grammar("invalid_pattern", "references", r"(a)\1", "regex"),
    "a regex with flags": grammar("invalid_pattern", "Flags", "(?i)a", "regex"),
    "a regex with an anchor inside": grammar("invalid_pattern", "Anchors", "a^b", "regex"),
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
RAN_LOCALLY: dict[str, Any] = {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}
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
    "a shell's text environment": tools(TYPE, "tools[0].environment", "an object", {**SHELL, "environment": "local"}),
    "an unknown key of a shell": tools(STRANGE, "tools[0].speed", "speed", {**SHELL, "speed": 1}),
    "a skill without a path": tools(
        *(MISSING, "tools[0].environment.skills[0].path", "path"), local(skills=[{"name": "a", "description": "b"}])
    ),
    "a nameless skill": tools(VALUE, "tools[0].environment.skills[0].name", "1", local(skills=[{**SKILL, "name": ""}])),
    "65 skills": tools(VALUE, "tools[0].environment.skills", "64", local(skills=[SKILL] * 65)),
    "a shell for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**SHELL, "allowed_callers": ["programmatic"]}
    ),
    "a search by nobody": tools(VALUE, "tools[0].execution", "nobody", {"type": "tool_search", "execution": "nobody"}),
    "a shell and a local shell": tools(VALUE, "tools[1].name", "same name", SHELL, {"type": "local_shell"}),
    "patches and a function of their name": tools(
        VALUE, "tools[1].name", "same name", PATCH, {**FUNCTION, "name": "apply_patch"}
    ),
    "a search in a namespace": tools(
        VALUE, "tools[0].tools[0].type", "function", {"type": "namespace", "name": "n", "tools": [CLIENT_SEARCH]}
    ),
    "a shell that is not declared": chosen(VALUE, "tool_choice.type", "Declare", SHELL, FUNCTION),
    "a shell in a container, chosen": chosen(
        *(UNSUPPORTED, "tool_choice.type", "can't run it", SHELL), {**SHELL, "environment": {"type": "container_auto"}}
    ),
    "patches among allowed tools, not declared": chosen(
        *(VALUE, "tool_choice.tools[0].type", "Declare"), {"type": "allowed_tools", "tools": [PATCH]}, FUNCTION
    ),
    "a shell, chosen as a function": chosen(
        VALUE, "tool_choice.type", "shell", {"type": "function", "name": "exec"}, SHELL
    ),
    "a function that is to be loaded": chosen(
        VALUE, "tool_choice.name", "defer_loading", {"type": "function", "name": "f"}, DEFERRED, CLIENT_SEARCH
    ),
    "a deferred function of a broken name": tools(
        VALUE, "tools[1].name", "a b", CLIENT_SEARCH, {**DEFERRED, "name": "a b"}
    ),
}

SENT: Table = {
    "a shell's call without its id": items(
        *(MISSING, "input[0].call_id", "call_id"), {"type": "shell_call", "action": {"commands": ["ls"]}}
    ),
    "a text for a shell's action": items(TYPE, "input[0].action", "an object", {**RAN, "action": "ls"}),
    "a number for a command": ran(TYPE, ".commands[0]", "a string", commands=[5]),
    "too many commands": ran(VALUE, ".commands", "1024", commands=["ls"] * 1025),
    "a shell's call of an unknown status": items(VALUE, "input[0].status", "odd", {**RAN, "status": "odd"}),
    "a shell's call without an output": items(None, "input", "No tool output found", RAN),
    "a number for what a command printed": printed(TYPE, "[0].stdout", "a string", {"stdout": 5}),
    "an unknown end of a command": printed(VALUE, "[0].outcome.type", "odd", {"outcome": {"type": "odd"}}),
    "an end without its code": printed(MISSING, "[0].outcome.exit_code", "exit", {"outcome": {"type": "exit"}}),
    "a local shell's action of another type": items(
        *(VALUE, "input[0].action.type", "fly"), {**RAN_LOCALLY, "action": {"type": "fly", "command": ["ls"]}}
    ),
    "an output of a local shell without its call": items(
        MISSING, "input[0].id", "call_id", {"type": "local_shell_call_output", "output": "x"}
    ),
    "an unknown operation": patched(VALUE, "type", "burn_file", {"type": "burn_file", "path": "a"}),
    "a path of two lines": patched(VALUE, "path", "a\\nb", {"type": "delete_file", "path": "a\nb"}),
    "a client's search without its id": items(
        *(MISSING, "input[0].call_id", "client"), {**SEARCHED, "call_id": None, "execution": "client"}
    ),
    "a search by an unknown side": items(VALUE, "input[0].execution", "both", {**SEARCHED, "execution": "both"}),
    "a search without what it found": items(None, "input", "No tool output found", SEARCHED),
    "what no search found": items(None, "input", "No function call found", FOUND),
    "a found tool of an unknown type": found(VALUE, "input[1].tools[0].type", "telepathy", {"type": "telepathy"}),
    "a found tool in a namespace of a broken name": found(
        VALUE, "input[1].tools[0].name", "a b", {"type": "namespace", "name": "a b", "tools": [FUNCTION]}
    ),
    "more found tools than there is room for": found(
        VALUE, "tools", "at most 128", *({**FUNCTION, "name": f"f{number}"} for number in range(128))
    ),
}


# --- formats of the answer ---

NAMED = {"type": "json_schema", "name": "a", "schema": {}}

FORMATS: Table = {
    "a list for text": create("text", [], TYPE, "an object"),
    "an unknown key of text": create("text", {"style": "terse"}, STRANGE, "style", named="text.style"),
    "an unknown verbosity": create("text", {"verbosity": "huge"}, VALUE, "huge", named="text.verbosity"),
    "a format without a type": form(MISSING, "type", "json_schema", {}),
    "a format of nobody": form(VALUE, "type", "yaml", {"type": "yaml"}),
    "a schema without a name": form(MISSING, "name", "name", {"type": "json_schema", "schema": {}}),
    "a schema with a wild name": form(VALUE, "name", "a b", {**NAMED, "name": "a b"}),
    "a schema of a book's length": form(VALUE, "", "262144", {**NAMED, "schema": {"title": "x" * 262_144}}),
}

SCHEMAS: Table = {
    "not": schema("not", "what is allowed", {"not": {"type": "string"}}),
    "if": schema("properties.a.if", "anyOf", {"properties": {"a": {"if": {}}}}),
    "dependentRequired": schema("dependentRequired", "anyOf", {"dependentRequired": {"a": ["b"]}}),
    "contains": schema("contains", "Leave it out", {"type": "array", "contains": {}}),
    "elements unique by a number": schema("uniqueItems", "a boolean", {"type": "array", "uniqueItems": 1}, VALUE),
    "a dynamic reference": schema("$dynamicRef", "$ref", {"$dynamicRef": "#a"}),
    "a reference to nothing": schema("$ref", "#/$defs/a", {"$ref": "#/$defs/a"}, VALUE),
    "a reference into the net": schema("$ref", "same schema", {"$ref": "https://example.org"}, VALUE),
    "a reference that is a number": schema("$ref", "same schema", {"$ref": 5}, VALUE),
    "a circular reference": schema("properties.a.$ref", "to itself", {"properties": {"a": {"$ref": "#/properties/a"}}}),
    "a reference to a list": schema("$ref", "same schema", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": []}}}, VALUE),
    "a definition that is a list": schema("$defs.a", "a schema", {"$ref": "#/$defs/a", "$defs": {"a": []}}, TYPE),
    "a reference beside a type": schema("type", "beside '$ref'", {"type": "object", "$ref": "#/$defs/a"}),
    "two schemas at once": schema("allOf", "Merge", {"allOf": [{"type": "object"}, {"type": "object"}]}),
    "schemas that may both match": schema("oneOf", "anyOf", {"oneOf": [{"type": "string"}, {"type": "string"}]}),
    "a choice with what may be anything": schema(
        "oneOf", "anyOf", {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "string"}], "$defs": {"a": True}}
    ),
    "a choice of nothing": schema("anyOf", "something in it", {"anyOf": []}, VALUE),
    "a choice that is no list": schema("anyOf", "a list", {"anyOf": {}}, VALUE),
    "false": schema("properties.a", "Nothing matches", {"properties": {"a": False}}),
    "a schema that is a number": schema("properties.a", "an object", {"properties": {"a": 5}}, TYPE),
    "an unknown type": schema("type", "float", {"type": "float"}, VALUE),
    "a type that is a number": schema("type", "5", {"type": 5}, VALUE),
    "types of nothing": schema("type", "[]", {"type": []}, VALUE),
    "keywords of two types": schema("type", "Name its type", {"minLength": 1, "minimum": 1}),
    "no values": schema("enum", "something in it", {"enum": []}, VALUE),
    "values of another type": schema("enum", "No value is left", {"type": "string", "enum": [1]}),
    "too many values": schema("enum", "2048", {"enum": list(range(2049))}, VALUE),
    "properties that are a list": schema("properties", "an object", {"properties": []}, VALUE),
    "required that is a text": schema("required", "a list", {"type": "object", "required": "a"}, VALUE),
    "forbidden": schema("required", "Declare it", {"type": "object", "required": ["a"], "additionalProperties": False}),
    "more required than allowed": schema(
        "maxProperties", "required", {"properties": {"a": {}, "b": {}}, "required": ["a", "b"], "maxProperties": 1}
    ),
    "names by a rule beside properties": schema(
        "patternProperties", "properties", {"properties": {"a": {}}, "patternProperties": {"b": {}}}
    ),
    "names by two rules": schema("patternProperties", "one pattern", {"patternProperties": {"a": {}, "b": {}}}),
    "names by a number": schema("propertyNames", "a schema", {"propertyNames": 5}, VALUE),
    "names by anything": schema("propertyNames", "a schema", {"propertyNames": True}, VALUE),
    "a pattern that looks around": schema("pattern", "Lookaround", {"pattern": "(?=a)"}, "invalid_pattern"),
    "a pattern that is too long": schema("pattern", "lengths", {"pattern": "a{6}", "maxLength": 5}, "invalid_pattern"),
    "a pattern that is a number": schema("pattern", "a string", {"pattern": 5}, TYPE),
    "a format beside a pattern": schema("format", "pattern", {"format": "date", "pattern": "^2"}),
    "a format that is a list": schema("format", "a string", {"type": "string", "format": []}, VALUE),
    "a length below nothing": schema("minLength", "-1", {"minLength": -1}, VALUE),
    "a length beyond reason": schema("maxLength", "integers from 0", {"maxLength": 10**18}, VALUE),
    "a length beyond numbers": schema("minLength", "integers from 0", {"minLength": 10**400}, VALUE),
    "half a length": schema("minLength", "0.5", {"minLength": 0.5}, VALUE),
    "a longest below the shortest": schema("maxLength", "less than", {"minLength": 5, "maxLength": 4}, VALUE),
    "a bound that is a text": schema("minimum", "numbers", {"minimum": "1"}, VALUE),
    "a bound beyond numbers": schema("minimum", "numbers", {"minimum": 10**400}, VALUE),
    "a bound of many decimals": schema("minimum", "decimals", {"type": "number", "minimum": 0.12345678}, VALUE),
    "nothing between the bounds": schema("", "between", {"type": "integer", "minimum": 2, "maximum": 1}),
    "multiples of true": schema("multipleOf", "above 0", {"type": "integer", "multipleOf": True}, VALUE),
    "multiples of nothing": schema("multipleOf", "above 0", {"type": "number", "multipleOf": 0}, VALUE),
    "multiples beyond the bounds": schema(
        "multipleOf", "No multiple", {"type": "number", "multipleOf": 5, "minimum": 1, "maximum": 2}
    ),
    "fewer elements than there must be": schema(
        "minItems", "At most 1", {"prefixItems": [{}], "items": False, "minItems": 2}
    ),
    "elements that are a number": schema("items", "an object", {"items": 5}, TYPE),
}
