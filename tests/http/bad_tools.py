"""Create requests whose tools are bad, or that choose what can't be called."""

from typing import Any

from tests.http.bad_requests import Bad, create
from tests.http.process import MODEL

FUNCTION: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
CLOCK: dict[str, Any] = {"type": "namespace", "name": "clock", "tools": []}


def tools(code: str, param: str, words: str, *values: Any) -> Bad:
    """A create request with these tools."""
    return Bad({"model": MODEL, "input": "hi", "tools": list(values)}, code, param, words)


def within(*members: Any) -> dict[str, Any]:
    """A namespace of these tools."""
    return {**CLOCK, "tools": list(members)}


def custom(form: Any) -> dict[str, Any]:
    """A custom tool of this format."""
    return {"type": "custom", "name": "c", "format": form}


def grammar(syntax: str, definition: str) -> dict[str, Any]:
    return {"type": "grammar", "syntax": syntax, "definition": definition}


def deep(levels: int) -> Any:
    """An object in an object, and so on."""
    return {"a": deep(levels - 1)} if levels else {}


def chosen(code: str, param: str, words: str, choice: Any) -> Bad:
    """A create request that chooses among a function and a hosted tool."""
    declared = [FUNCTION, {"type": "web_search"}]
    return Bad({"model": MODEL, "input": "hi", "tools": declared, "tool_choice": choice}, code, param, words)


TOOLS: dict[str, Bad] = {
    "an object for tools": create("tools", {}, "invalid_type", "an array"),
    "a tool that is a text": tools("invalid_type", "tools[0]", "an object", "f"),
    "a tool of no type": tools("missing_required_parameter", "tools[0].type", "function", {"name": "f"}),
    "a tool of an unknown type": tools("invalid_value", "tools[0].type", "telepathy", {"type": "telepathy"}),
    "a tool without a name": tools("missing_required_parameter", "tools[0].name", "name", {"type": "function"}),
    "a name with spaces": tools("invalid_value", "tools[0].name", "a b", {**FUNCTION, "name": "a b"}),
    "a name of 65 letters": tools("invalid_value", "tools[0].name", "64", {**FUNCTION, "name": "f" * 65}),
    "a name with control tokens": tools("invalid_value", "tools[0].name", "<|end|>", {**FUNCTION, "name": "<|end|>"}),
    "a list for parameters": tools("invalid_type", "tools[0].parameters", "an object", {**FUNCTION, "parameters": []}),
    "an unknown key of a tool": tools("unknown_parameter", "tools[0].speed", "speed", {**FUNCTION, "speed": 1}),
    "chat's form of a tool": tools(
        "unknown_parameter", "tools[0].function", "function", {"type": "function", "function": FUNCTION}
    ),
    "two tools of one name": tools("invalid_value", "tools[1].name", "same name", FUNCTION, FUNCTION),
    "no name for a namespace": tools("missing_required_parameter", "tools[0].name", "name", {"type": "namespace"}),
    "a namespace in a namespace": tools("invalid_value", "tools[0].tools[0].type", "namespace", within({**CLOCK})),
    "a hosted tool in a namespace": tools(
        "invalid_value", "tools[0].tools[0].type", "web_search", within({"type": "web_search"})
    ),
    "two of one name in a namespace": tools(
        "invalid_value", "tools[0].tools[1].name", "same name", within(FUNCTION, FUNCTION)
    ),
    "too many in a namespace": tools(
        "invalid_value", "tools", "128", FUNCTION, within(*({**FUNCTION, "name": f"g{n}"} for n in range(128)))
    ),
    "strict parameters that nobody can hold": tools(
        "invalid_json_schema", "tools[0].parameters.not", "not", {**FUNCTION, "strict": True, "parameters": {"not": {}}}
    ),
    "parameters as deep as a cave": tools(
        "invalid_value", "tools[0].parameters", "64", {**FUNCTION, "parameters": deep(80)}
    ),
    "a hosted tool as deep as a cave": tools("invalid_value", "tools[0]", "64", {"type": "mcp", "filters": deep(80)}),
    "a function for programs": tools(
        "unsupported_parameter", "tools[0].allowed_callers", "direct", {**FUNCTION, "allowed_callers": ["programmatic"]}
    ),
    "a format of no type": tools("missing_required_parameter", "tools[0].format.type", "type", custom({})),
    "a format that is a poem": tools("invalid_value", "tools[0].format.type", "poem", custom({"type": "poem"})),
    "a grammar of an unknown kind": tools(
        "invalid_value", "tools[0].format.syntax", "lark", custom(grammar("bnf", "x"))
    ),
    "a grammar without rules": tools(
        "invalid_value", "tools[0].format.definition", "Give", custom(grammar("lark", ""))
    ),
    "a broken grammar": tools(
        "invalid_grammar", "tools[0].format.definition", "grammar", custom(grammar("lark", "start: ("))
    ),
    "a broken pattern": tools(
        "invalid_pattern", "tools[0].format.definition", "pattern", custom(grammar("regex", "("))
    ),
    "too many tools": tools("invalid_value", "tools", "129", *({**FUNCTION, "name": f"f{n}"} for n in range(129))),
}

CHOICES: dict[str, Bad] = {
    "a choice that is a number": chosen("invalid_type", "tool_choice", "5", 5),
    "an unknown choice": chosen("invalid_value", "tool_choice", "any", "any"),
    "a choice of no type": chosen("missing_required_parameter", "tool_choice.type", "function", {"name": "f"}),
    "a choice of an unknown type": chosen("invalid_value", "tool_choice.type", "telepathy", {"type": "telepathy"}),
    "a choice of no name": chosen("missing_required_parameter", "tool_choice.name", "name", {"type": "function"}),
    "a function that nobody declared": chosen(
        "invalid_value", "tool_choice.name", "get_wether", {"type": "function", "name": "get_wether"}
    ),
    "a function as a custom tool": chosen(
        "invalid_value", "tool_choice.type", "function", {"type": "custom", "name": "f"}
    ),
    "chat's form of a choice": chosen(
        "unknown_parameter", "tool_choice.function", "function", {"type": "function", "function": {"name": "f"}}
    ),
    "a tool without a back end": chosen(
        "unsupported_parameter", "tool_choice.type", "back end", {"type": "web_search"}
    ),
    "no tools that are allowed": chosen(
        "invalid_value", "tool_choice.tools", "at least one", {"type": "allowed_tools", "tools": []}
    ),
    "too many tools that are allowed": chosen(
        "invalid_value",
        "tool_choice.tools",
        "128",
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}] * 129},
    ),
    "an allowed tool that nobody declared": chosen(
        "invalid_value",
        "tool_choice.tools[0].name",
        "g",
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]},
    ),
    "an allowed tool of no type": chosen(
        "missing_required_parameter", "tool_choice.tools[0].type", "type", {"type": "allowed_tools", "tools": [{}]}
    ),
    "an unknown mode": chosen(
        "invalid_value", "tool_choice.mode", "often", {"type": "allowed_tools", "tools": [{}], "mode": "often"}
    ),
    "a call of tools that nobody runs": chosen(
        "invalid_value",
        "tool_choice.tools",
        "no tool to call",
        {"type": "allowed_tools", "tools": [{"type": "web_search"}], "mode": "required"},
    ),
    "a call where there is only a hosted tool": Bad(
        {"model": MODEL, "input": "hi", "tools": [{"type": "mcp"}], "tool_choice": "required"},
        "invalid_value",
        "tool_choice",
        "back end",
    ),
}
