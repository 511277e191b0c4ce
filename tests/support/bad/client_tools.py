"""Tools that the client runs, their calls and outputs as no client should send them, and what it is told."""

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
    items,
    tools,
)

SHELL: dict[str, Any] = {"type": "shell"}
PATCH: dict[str, Any] = {"type": "apply_patch"}
SEARCH: dict[str, Any] = {"type": "tool_search", "execution": "client"}
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
    return items(code, where, words, SEARCHED, {**FOUND, "tools": list(values)}, tools=[SEARCH])


DECLARED: Table = {
    "a shell nowhere": tools(MISSING, "tools[0].environment.type", "local", {**SHELL, "environment": {}}),
    "a lunar shell": tools(VALUE, "tools[0].environment.type", "moon", {**SHELL, "environment": {"type": "moon"}}),
    "a shell's text environment": tools(TYPE, "tools[0].environment", "an object", {**SHELL, "environment": "local"}),
    "an unknown key of a shell": tools(STRANGE, "tools[0].speed", "speed", {**SHELL, "speed": 1}),
    "an unknown key of an environment": tools(STRANGE, "tools[0].environment.speed", "speed", local(speed=1)),
    "a text for skills": tools(TYPE, "tools[0].environment.skills", "an array", local(skills="all")),
    "a skill without a path": tools(
        *(MISSING, "tools[0].environment.skills[0].path", "path"), local(skills=[{"name": "a", "description": "b"}])
    ),
    "a nameless skill": tools(VALUE, "tools[0].environment.skills[0].name", "1", local(skills=[{**SKILL, "name": ""}])),
    "65 skills": tools(VALUE, "tools[0].environment.skills", "64", local(skills=[SKILL] * 65)),
    "a shell for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**SHELL, "allowed_callers": ["programmatic"]}
    ),
    "patches for programs alone": tools(
        UNSUPPORTED, "tools[0].allowed_callers", "direct", {**PATCH, "allowed_callers": ["programmatic"]}
    ),
    "an unknown key of patches": tools(STRANGE, "tools[0].path", "path", {**PATCH, "path": "/"}),
    "an unknown key of a local shell": tools(STRANGE, "tools[0].env", "env", {"type": "local_shell", "env": {}}),
    "a search by nobody": tools(VALUE, "tools[0].execution", "nobody", {"type": "tool_search", "execution": "nobody"}),
    "a search numbered, not described": tools(TYPE, "tools[0].description", "a string", {**SEARCH, "description": 5}),
    "a list for a search's parameters": tools(TYPE, "tools[0].parameters", "an object", {**SEARCH, "parameters": []}),
    "an unknown key of a search": tools(STRANGE, "tools[0].limit", "limit", {**SEARCH, "limit": 8}),
    "two shells": tools(VALUE, "tools[1].name", "same name", SHELL, SHELL),
    "a shell and a local shell": tools(VALUE, "tools[1].name", "same name", SHELL, {"type": "local_shell"}),
    "patches and a function of their name": tools(
        VALUE, "tools[1].name", "same name", PATCH, {**FUNCTION, "name": "apply_patch"}
    ),
    "a search in a namespace": tools(
        VALUE, "tools[0].tools[0].type", "function", {"type": "namespace", "name": "n", "tools": [SEARCH]}
    ),
    "a shell that is not declared": chosen(VALUE, "tool_choice.type", "Declare", SHELL, FUNCTION),
    "a shell in a container, chosen": chosen(
        *(UNSUPPORTED, "tool_choice.type", "can't run it", SHELL), {**SHELL, "environment": {"type": "container_auto"}}
    ),
    "a server's search, chosen": chosen(
        *(UNSUPPORTED, "tool_choice.type", "can't run it", {"type": "tool_search"}), {"type": "tool_search"}
    ),
    "patches among allowed tools, not declared": chosen(
        *(VALUE, "tool_choice.tools[0].type", "Declare"), {"type": "allowed_tools", "tools": [PATCH]}, FUNCTION
    ),
    "a shell, chosen as a function": chosen(
        VALUE, "tool_choice.type", "shell", {"type": "function", "name": "exec"}, SHELL
    ),
    "a function that is to be loaded": chosen(
        VALUE, "tool_choice.name", "defer_loading", {"type": "function", "name": "f"}, DEFERRED, SEARCH
    ),
    "a deferred function of a broken name": tools(VALUE, "tools[1].name", "a b", SEARCH, {**DEFERRED, "name": "a b"}),
}

SENT: Table = {
    "a shell's call without its id": items(
        *(MISSING, "input[0].call_id", "call_id"), {"type": "shell_call", "action": {"commands": ["ls"]}}
    ),
    "a shell's call with an empty id": items(VALUE, "input[0].call_id", "256", {**RAN, "call_id": ""}),
    "a shell's call of nothing": items(MISSING, "input[0].action", "action", {"type": "shell_call", "call_id": "c"}),
    "a text for a shell's action": items(TYPE, "input[0].action", "an object", {**RAN, "action": "ls"}),
    "a shell's action without commands": items(MISSING, "input[0].action.commands", "commands", {**RAN, "action": {}}),
    "a text for commands": ran(TYPE, ".commands", "an array", commands="ls"),
    "a number for a command": ran(TYPE, ".commands[0]", "a string", commands=[5]),
    "too many commands": ran(VALUE, ".commands", "1024", commands=["ls"] * 1025),
    "a text for a command's time": ran(TYPE, ".timeout_ms", "an integer", timeout_ms="long"),
    "a text environment, sent back": items(TYPE, "input[0].environment", "an object", {**RAN, "environment": "local"}),
    "a shell's call of an unknown status": items(VALUE, "input[0].status", "odd", {**RAN, "status": "odd"}),
    "a shell's call without an output": items(None, "input", "No tool output found", RAN),
    "an output of no shell's call": items(
        None, "input", "No function call found", {"type": "shell_call_output", "call_id": "c", "output": []}
    ),
    "a text for what a shell printed": items(
        *(TYPE, "input[1].output", "an array", RAN), {"type": "shell_call_output", "call_id": "c", "output": "x"}
    ),
    "a number for what a command printed": printed(TYPE, "[0].stdout", "a string", {"stdout": 5}),
    "an unknown end of a command": printed(VALUE, "[0].outcome.type", "odd", {"outcome": {"type": "odd"}}),
    "an end without its code": printed(MISSING, "[0].outcome.exit_code", "exit", {"outcome": {"type": "exit"}}),
    "a text for an exit code": printed(
        TYPE, "[0].outcome.exit_code", "an integer", {"outcome": {"type": "exit", "exit_code": "0"}}
    ),
    "two outputs of a shell's call": items(
        *(VALUE, "input[2].call_id", "once", RAN), *[{"type": "shell_call_output", "call_id": "c", "output": []}] * 2
    ),
    "a local shell's text for a command": items(
        TYPE, "input[0].action.command", "an array", {**RAN_LOCALLY, "action": {"command": "ls"}}
    ),
    "a local shell's action of another type": items(
        *(VALUE, "input[0].action.type", "fly"), {**RAN_LOCALLY, "action": {"type": "fly", "command": ["ls"]}}
    ),
    "a list for environment variables": items(
        TYPE, "input[0].action.env", "an object", {**RAN_LOCALLY, "action": {"command": ["ls"], "env": []}}
    ),
    "an output of a local shell without its call": items(
        MISSING, "input[0].id", "call_id", {"type": "local_shell_call_output", "output": "x"}
    ),
    "an output of no local shell's call": items(
        None, "input", "No function call found", {"type": "local_shell_call_output", "id": "c", "output": "x"}
    ),
    "a list for what a local shell printed": items(
        *(TYPE, "input[1].output", "a string", RAN_LOCALLY),
        {"type": "local_shell_call_output", "id": "c", "output": []},
    ),
    "an empty patch": items(MISSING, "input[0].operation", "operation", {"type": "apply_patch_call", "call_id": "c"}),
    "an unknown operation": patched(VALUE, "type", "burn_file", {"type": "burn_file", "path": "a"}),
    "a patch of no file": patched(MISSING, "path", "path", {"type": "delete_file"}),
    "a patch without its diff": patched(MISSING, "diff", "diff", {"type": "update_file", "path": "a"}),
    "a path of two lines": patched(VALUE, "path", "a\\nb", {"type": "delete_file", "path": "a\nb"}),
    "a number for a diff": patched(TYPE, "diff", "a string", {"type": "create_file", "path": "a", "diff": 5}),
    "an output of a patch without its status": items(
        *(MISSING, "input[1].status", "status", PATCHED), {"type": "apply_patch_call_output", "call_id": "c"}
    ),
    "an output of a patch that is neither": items(
        *(VALUE, "input[1].status", "perhaps", PATCHED),
        {"type": "apply_patch_call_output", "call_id": "c", "status": "perhaps"},
    ),
    "a search without arguments": items(
        MISSING, "input[0].arguments", "arguments", {"type": "tool_search_call", "call_id": "c"}
    ),
    "a text for a search's arguments": items(TYPE, "input[0].arguments", "an object", {**SEARCHED, "arguments": "x"}),
    "a client's search without its id": items(
        *(MISSING, "input[0].call_id", "client"), {**SEARCHED, "call_id": None, "execution": "client"}
    ),
    "a search by an unknown side": items(VALUE, "input[0].execution", "both", {**SEARCHED, "execution": "both"}),
    "a search without what it found": items(None, "input", "No tool output found", SEARCHED),
    "what no search found": items(None, "input", "No function call found", FOUND),
    "found tools that are missing": items(
        *(MISSING, "input[1].tools", "tools", SEARCHED), {"type": "tool_search_output", "call_id": "c"}
    ),
    "a text for found tools": items(TYPE, "input[1].tools", "an array", SEARCHED, {**FOUND, "tools": "f"}),
    "a found tool of an unknown type": found(VALUE, "input[1].tools[0].type", "telepathy", {"type": "telepathy"}),
    "a found tool without a name": found(MISSING, "input[1].tools[0].name", "name", {"type": "function"}),
    "a found tool of a broken name": found(VALUE, "input[1].tools[0].name", "a b", {**FUNCTION, "name": "a b"}),
    "a found tool in a namespace of a broken name": found(
        VALUE, "input[1].tools[0].name", "a b", {"type": "namespace", "name": "a b", "tools": [FUNCTION]}
    ),
    "more found tools than there is room for": found(
        VALUE, "tools", "at most 128", *({**FUNCTION, "name": f"f{number}"} for number in range(128))
    ),
}
