"""Tools that the client runs: functions, custom tools, and those whose calls are items of their own.

gpt-oss was trained on functions alone, so a custom tool is shown as one. Where any text will do it has one parameter,
`input`, and its calls are JSON objects that are unwrapped again: the model knows this form well, and it shows where a
text ends. Under a grammar the content of a call is the bare text, as JSON's escapes would not match it; its
type is `string` then, and a comment shows the grammar.

The model is shown tool_search, shell, local_shell and apply_patch under a name, and in a form, that it knows from its
training: `container.exec` for a command, a patch as a text for apply_patch. So the model's text differs from the item;
this file converts one into the other, both ways. The format of a call is always enforced, as its item has no place for
anything else. Never a tool that OpenAI would run: a shell in a container, and a search that the server does, are left
out (hosted.py).
"""

import re
import shlex
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Meta

from service.api.tools.callee import Callee, Callers, check_callers
from service.api.tools.hosted import echo_of_hosted, within_size
from service.decoding import ABSENT, Json, ObjectKind, decode
from service.errors import invalid_value, missing, not_served
from service.grammar.grammars import enforced_grammar
from service.grammar.regex import enforced_regex
from service.grammar.schemas import enforced_schema
from service.grammar.tags import grammar_content, regex_content, schema_content
from service.harmony.typescript import Function

ClientKind = Literal["tool_search", "shell", "local_shell", "apply_patch"]
DESCRIPTION = Annotated[str, Meta(max_length=1_048_576)]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""The legal names of a tool, or of a namespace. Sources: OpenAI's and Anthropic's references."""

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of the arguments of a function that takes none."""

ANY_PARAMETERS: dict[str, Any] = {"type": "object"}
"""The schema of a function's arguments, where an empty one says nothing of them."""


def _closed_object(required: str, **properties: Json) -> Json:
    """The schema of an object with these members and no others."""
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}


INPUT = _closed_object("input", input={"type": "string"})
"""The schema of a call's content where the input is any text."""

TEXT = schema_content(INPUT)
"""The format of such a call's content."""


# --- functions and custom tools ---


class FunctionTool(msgspec.Struct, forbid_unknown_fields=True):
    """A function that the caller runs, as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Any = None
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")
    allowed_callers: Callers = None


class CustomTool(msgspec.Struct, forbid_unknown_fields=True):
    """A custom tool as sent."""

    type: str
    name: str
    description: DESCRIPTION | None = None
    format: msgspec.Raw = ABSENT
    defer_loading: bool | None = None
    async_: bool | None = msgspec.field(default=None, name="async")
    allowed_callers: Callers = None


class _Text(msgspec.Struct, forbid_unknown_fields=True, tag="text", tag_field="type"):
    """Any text."""


class _Grammar(msgspec.Struct, forbid_unknown_fields=True, tag="grammar", tag_field="type"):
    """Texts that match a definition."""

    syntax: Literal["lark", "regex"]
    definition: str


class Declared(NamedTuple):
    """A tool that the caller runs: as it is called, as the model sees it, as it is echoed, and the work that makes the
    format of a call's content, None for any.
    """

    callee: Callee
    shown: Function
    echo: dict[str, Any]
    content: Generator[None, None, str | None]


def _arguments(
    schema: dict[str, Any] | None, where: str, *, free: str | None, strict: bool = False
) -> Generator[None, None, str | None]:
    """The format of a call's arguments, by the schema at `where`: `free` without a schema, or for one that can't be
    enforced. If it is `strict`, such a schema raises InvalidRequest.
    """
    if schema is None:
        return free
    enforced = yield from enforced_schema(schema, where, strict=strict)
    return free if enforced is None else schema_content(enforced)


def read_own(raw: msgspec.Raw, kind: str, where: str, namespace: str | None) -> Declared | None:
    """The tool of these kinds that stands at `where`; None where OpenAI would run it. Raises InvalidRequest; so does
    its work, for its schema or its grammar.
    """
    match kind:
        case "function":
            return _function(decode(raw, FunctionTool, where), where, namespace)
        case "custom":
            return _custom(decode(raw, CustomTool, where), where, namespace)
        case "shell":
            shell = decode(raw, ShellTool, where)
            check_callers(shell.allowed_callers, where)
            environment = _local_environment(shell.environment, f"{where}.environment")
            if environment is None:
                return None
            return _declare("shell", _EXEC + _shown_skills(environment), SHELL, raw, where)
        case "local_shell":
            decode(raw, LocalShellTool, where)
            return _declare("local_shell", _EXEC, LOCAL_SHELL, raw, where)
        case "apply_patch":
            check_callers(decode(raw, ApplyPatchTool, where).allowed_callers, where)
            return _declare("apply_patch", _PATCHES, {"type": "string"}, raw, where)
        case "tool_search" if searches(raw, kind, where):
            search = decode(raw, ToolSearchTool, where)
            parameters = within_size(search.parameters or SEARCH, f"{where}.parameters")
            return _declare("tool_search", search.description or _SEARCHES, parameters, raw, where)
        case _:
            return None


def _function(tool: FunctionTool, where: str, namespace: str | None) -> Declared:
    """The function. A schema that can't be enforced is refused only where `strict` asks for it. A function that doesn't
    mention `strict` is enforced as far as possible.
    """
    _check(tool, where)
    within_size(tool.parameters, f"{where}.parameters")
    echo: Json = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    schema = NO_PARAMETERS if tool.parameters is None else tool.parameters or ANY_PARAMETERS
    enforced = None if tool.strict is False else schema
    content = _arguments(enforced, f"{where}.parameters", free=None, strict=bool(tool.strict))
    shown = Function(tool.name, tool.description or "", tool.parameters)
    callee = Callee(tool.name, "function", namespace, seals=_seals(tool.parameters))
    return Declared(callee, shown, echo | _given_members(tool), content)


def _seals(parameters: Json | None) -> bool:
    """Whether a parameter is to be encrypted, as those of Codex' agents are. Nothing is, and Codex takes the words for
    what they are where a call says so by `encrypted_function_args`. Source: openai/codex, pull request 35845.
    """
    properties: Any = (parameters or {}).get("properties")
    members = cast(Json, properties).values() if isinstance(properties, dict) else ()
    return any(isinstance(each, dict) and cast(Json, each).get("encrypted") is True for each in members)


def _custom(tool: CustomTool, where: str, namespace: str | None) -> Declared:
    _check(tool, where)
    form = decode(tool.format, _Text | _Grammar | None, f"{where}.format") or _Text()
    echo: Json = {
        "type": "custom",
        "name": tool.name,
        "description": tool.description,
        "format": msgspec.to_builtins(form),
    }
    shown = Function(tool.name, tool.description or "", INPUT)
    if isinstance(form, _Grammar):
        if not form.definition.strip():
            raise invalid_value(f"{where}.format.definition", repr(form.definition), "Give the grammar itself.")
        shown = Function(tool.name, f"{shown.description}\n\n{_grammar_text(form)}".lstrip("\n"), {"type": "string"})
    callee = Callee(tool.name, "custom", namespace, wrapped=isinstance(form, _Text))
    return Declared(callee, shown, echo | _given_members(tool), _content(form, f"{where}.format.definition"))


def _grammar_text(grammar: _Grammar) -> str:
    kind = "this Lark grammar" if grammar.syntax == "lark" else "this regular expression"
    return f"The input is plain text, not JSON. It must match {kind}:\n{grammar.definition.strip()}"


def _content(form: _Text | _Grammar, where: str) -> Generator[None, None, str]:
    if isinstance(form, _Text):
        return TEXT
    if form.syntax == "regex":
        return regex_content(enforced_regex(form.definition, where))
    return grammar_content((yield from enforced_grammar(form.definition, where)))


def _check(tool: FunctionTool | CustomTool, where: str) -> None:
    check_name(tool.name, where, "tool")
    if tool.async_:
        raise not_served(f"{where}.async", "true", "Leave it out.")
    check_callers(tool.allowed_callers, where)


def check_name(name: str, where: str, what: str) -> None:
    """Raise InvalidRequest for a name that no tool, or namespace, may have."""
    if not TOOL_NAME.fullmatch(name):
        expected = f"A {what}'s name has 1 to 128 of the characters A-Z, a-z, 0-9, _ and -."
        raise invalid_value(f"{where}.name", name, expected)


def _given_members(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    """Those members that an echo has only where they were given."""
    given = {"defer_loading": tool.defer_loading, "async": tool.async_, "allowed_callers": tool.allowed_callers}
    if isinstance(tool, FunctionTool):
        given["output_schema"] = tool.output_schema
    return {name: value for name, value in given.items() if value is not None}


MAX_SKILLS = 64
"""The most skills of a shell; each takes a line of the prompt."""

_Line = Annotated[str, Meta(min_length=1, max_length=256)]
_Words = Annotated[str, Meta(max_length=4_096)]
_ENVIRONMENTS = "Give 'local', 'container_auto' or 'container_reference'."


# --- tools with items of their own, as declared ---


class Skill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder of instructions on the client's machine, which the model may read."""

    name: _Line
    description: _Words
    path: _Words


class LocalEnvironment(msgspec.Struct, forbid_unknown_fields=True):
    """The client's own machine."""

    type: Literal["local"]
    skills: Annotated[list[Skill], Meta(max_length=MAX_SKILLS)] | None = None


class ShellTool(msgspec.Struct, forbid_unknown_fields=True):
    """A shell, as sent."""

    type: Literal["shell"]
    environment: msgspec.Raw = ABSENT
    allowed_callers: Callers = None


class LocalShellTool(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's first form of the shell, as sent."""

    type: Literal["local_shell"]


class ApplyPatchTool(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of files on the client's machine, as sent."""

    type: Literal["apply_patch"]
    allowed_callers: Callers = None


class ToolSearchTool(msgspec.Struct, forbid_unknown_fields=True):
    """A search for tools, as sent."""

    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: DESCRIPTION | None = None
    parameters: dict[str, Any] | None = None


def searches(raw: msgspec.Raw, kind: str | None, where: str) -> bool:
    """Whether a tool of this kind is a search for tools that the client does. Raises InvalidRequest."""
    return kind == "tool_search" and decode(raw, ToolSearchTool, where).execution == "client"


def is_run_by_the_client(tool: Json) -> bool:
    """Whether the echo of a tool, of any type, is that of one of these which the client runs."""
    match tool:
        case {"type": "tool_search"}:
            return tool.get("execution") == "client"
        case {"type": "shell"}:
            environment: Any = tool.get("environment") or {"type": "local"}
            return environment.get("type") == "local"
        case _:
            return tool.get("type") in CLIENT


def _local_environment(raw: msgspec.Raw, where: str) -> LocalEnvironment | None:
    """The client's machine, which is a shell's default; None for a container. Raises InvalidRequest."""
    if raw == ABSENT:
        return LocalEnvironment("local")
    kind = decode(raw, ObjectKind, where).type
    if kind is None:
        raise missing(f"{where}.type", _ENVIRONMENTS)
    if kind not in ("local", "container_auto", "container_reference"):
        raise invalid_value(f"{where}.type", kind, _ENVIRONMENTS)
    return decode(raw, LocalEnvironment, where) if kind == "local" else None


def _shown_skills(environment: LocalEnvironment) -> str:
    if not environment.skills:
        return ""
    lines = [f"- {skill.name}: {skill.description} ({skill.path})" for skill in environment.skills]
    return "\n".join(["\nSkills are folders with instructions; read the one that fits before you begin:", *lines])


def _declare(kind: ClientKind, description: str, schema: dict[str, Any], raw: msgspec.Raw, where: str) -> Declared:
    namespace, name = ADDRESSES[kind]
    echo = echo_of_hosted(decode(raw, Json, where), where)
    if kind == "apply_patch":
        content = _arguments(None, where, free=_patch_format())
    else:
        content = _arguments(schema if schema.get("type") == "object" else None, f"{where}.parameters", free=_ANY)
    return Declared(Callee(name, kind, namespace), Function(name, description, schema), echo, content)


@lru_cache(maxsize=1)
def _patch_format() -> str:
    return regex_content(enforced_regex(PATCH, "tools"))


# --- as the model sees them ---

ADDRESSES: dict[ClientKind, tuple[str | None, str]] = {
    "tool_search": (None, "tool_search"),
    "shell": ("container", "exec"),
    "local_shell": ("container", "exec"),
    "apply_patch": (None, "apply_patch"),
}
"""The namespace, None for that of functions, and the name by which the model calls each."""

_TEXT = {"type": "string"}
_ANY = schema_content({"type": "object"})
"""The least format of a call, as an item has no place for anything else."""

_CMD = {
    "type": "array",
    "items": _TEXT,
    "minItems": 1,
    "description": 'A program and its arguments. For a line of shell: ["bash", "-lc", "ls | wc -l"].',
}
_TIMEOUT = {"type": "integer", "description": "After how many milliseconds it is stopped."}

SHELL = _closed_object("cmd", cmd=_CMD, timeout=_TIMEOUT)
"""The arguments of a shell's call."""

LOCAL_SHELL = _closed_object(
    "cmd",
    cmd=_CMD,
    workdir={"type": "string", "description": "The folder in which it runs."},
    env={"type": "object", "additionalProperties": _TEXT, "description": "More environment variables."},
    timeout=_TIMEOUT,
    user={"type": "string", "description": "As whom it runs."},
)
"""The arguments of a local shell's call."""

SEARCH = _closed_object("query", query={"type": "string", "description": "What the tools are to do."})
"""The default arguments of a search, for a client that declares none."""

_EXEC = "Runs a shell command on the user's machine, and returns what it prints."
_SEARCHES = "Searches for more tools. Those that it finds can be called afterwards."
_PATCHES = """Changes one file on the user's machine. The input is a patch: plain text, not JSON.
To add a file, all its lines:
*** Begin Patch
*** Add File: PATH
+a line of the file
*** End Patch
To change a file, with some lines that stay around each change, and before them the line of the function or class:
*** Begin Patch
*** Update File: PATH
@@ def greet():
 a line that stays
-a line that goes
+a line that comes
*** End Patch
To delete a file:
*** Begin Patch
*** Delete File: PATH
*** End Patch
PATH is relative. A call changes one file: call again for the next one."""

PATCH = (
    r"\*\*\* Begin Patch\n"
    r"(\*\*\* Add File: [^\n]+\n(\+[^\n]*\n)+"
    r"|\*\*\* Delete File: [^\n]+\n"
    r"|\*\*\* Update File: [^\n]+\n((@@|[-+ ])[^\n]*\n|\n)+(\*\*\* End of File\n)?)"
    r"\*\*\* End Patch\n?"
)
"""A patch of one file, as gpt-oss learned to write patches."""


# --- calls, from the model's text and back ---


class _Exec(msgspec.Struct):
    cmd: Annotated[list[str], Meta(min_length=1)]
    workdir: str | None = None
    env: dict[str, str] | None = None
    timeout: int | None = None
    user: str | None = None


_object = msgspec.json.Decoder(dict[str, Any])
_SHELLS = ("sh", "bash", "zsh", "/bin/sh", "/bin/bash", "/bin/zsh", "/usr/bin/bash")
_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_HEADINGS = {"create_file": "*** Add File: ", "update_file": "*** Update File: ", "delete_file": "*** Delete File: "}


class ActionForm(NamedTuple):
    """The conversion between the content of a call and the action of its item. `read` raises ValueError or msgspec's
    errors, and `empty` is the action before the call is complete.
    """

    read: Callable[[str], Json]
    write: Callable[[Json], str]
    empty: Json


def _read_shell(content: str) -> Json:
    call = msgspec.json.decode(content, type=_Exec)
    return {"commands": [_line(call.cmd)], "timeout_ms": call.timeout, "max_output_length": None}


def _line(cmd: list[str]) -> str:
    if len(cmd) == 3 and cmd[0] in _SHELLS and cmd[1] in ("-c", "-lc"):
        return cmd[2]
    return shlex.join(cmd)


def _write_shell(action: Json) -> str:
    timeout = action.get("timeout_ms")
    call: Json = {"cmd": ["bash", "-lc", "\n".join(action["commands"])]}
    return _json(call if timeout is None else call | {"timeout": timeout})


_LOCAL = {"working_directory": "workdir", "env": "env", "timeout_ms": "timeout", "user": "user"}
"""The names that members of a local shell's action have in a call."""


def _read_local_shell(content: str) -> Json:
    call = msgspec.json.decode(content, type=_Exec)
    given = {ours: value for ours, theirs in _LOCAL.items() if (value := getattr(call, theirs)) is not None}
    action: Json = {"type": "exec", "command": call.cmd, "env": {}}
    return action | given


def _write_local_shell(action: Json) -> str:
    given = {theirs: action[ours] for ours, theirs in _LOCAL.items() if action.get(ours)}
    return _json({"cmd": action["command"]} | given)


def _read_patch(content: str) -> Json:
    lines = content.strip("\n").split("\n")
    heading = lines[1] if len(lines) > 2 and (lines[0], lines[-1]) == (_BEGIN, _END) else ""
    kind = next((kind for kind, words in _HEADINGS.items() if heading.startswith(words)), None)
    path = heading.removeprefix(_HEADINGS[kind]).strip() if kind else ""
    diff = lines[2:-1]
    wrong = {"create_file": not all(line.startswith("+") for line in diff) or not diff, "update_file": not diff}
    headings = (*_HEADINGS.values(), _BEGIN, _END)
    if not path or kind is None or wrong.get(kind, bool(diff)) or any(line.startswith(headings) for line in diff):
        raise ValueError("it is not a patch of one file")
    operation = {"type": kind, "path": path}
    return operation if kind == "delete_file" else operation | {"diff": "".join(f"{line}\n" for line in diff)}


def _write_patch(operation: Json) -> str:
    diff = operation.get("diff") or ""
    body = diff if not diff or diff.endswith("\n") else f"{diff}\n"
    return f"{_BEGIN}\n{_HEADINGS[operation['type']]}{operation['path']}\n{body}{_END}\n"


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


FORMS: dict[ClientKind, ActionForm] = {
    "tool_search": ActionForm(_object.decode, _json, {}),
    "shell": ActionForm(_read_shell, _write_shell, {"commands": [], "timeout_ms": None, "max_output_length": None}),
    "local_shell": ActionForm(_read_local_shell, _write_local_shell, {"type": "exec", "command": [], "env": {}}),
    "apply_patch": ActionForm(_read_patch, _write_patch, {"type": "update_file", "path": "", "diff": ""}),
}
"""The form of each kind."""

CLIENT = frozenset(FORMS)
"""The kinds of tools that have items of their own and may be the client's to run."""


def action_of(kind: ClientKind, content: str) -> Json:
    """The action in the item of a call with this content. Raises ValueError if that is no call of this kind."""
    try:
        return FORMS[kind].read(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no call of {recipient_of(kind)}: {error}") from None


def content_of(kind: ClientKind, action: Json) -> str:
    """The content of a call whose item has this action."""
    return FORMS[kind].write(action)


def recipient_of(kind: ClientKind) -> str:
    namespace, name = ADDRESSES[kind]
    return Callee(name, kind, namespace).recipient
