"""Items of the client's tools that have their own: calls as clients send them back, and their outputs.

Searches for tools, commands of a shell, and patches. A search that the server did is listed as it came and tells the
model nothing; but the tools that it found are loaded all the same.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from service.api.items import Gathered, InputItem, checked_call_id
from service.api.tools.callee import FUNCTIONS
from service.api.tools.client import ClientKind, content_of
from service.api.tools.hosted import HOSTED, echo_of_hosted
from service.api.tools.read import MAX_LOADED
from service.decoding import ABSENT, Json, Kind, decode, decode_list
from service.errors import invalid_value, missing

MAX_COMMANDS = 1024
"""The most commands of a call, and the most outputs of one."""

MAX_ACTION_BYTES = 1_048_576
"""The most bytes of JSON in a call's action: some 20 ms at worst."""

MAX_ENV = 1024
"""The most environment variables of a command."""

Status = Literal["in_progress", "completed", "incomplete"]
Execution = Literal["server", "client"]
Path = Annotated[str, Meta(pattern=r"^[^\r\n]*\Z")]
"""A path, which stands on a line of a patch."""


# --- as they are listed ---


class ActionCallItem(InputItem, kw_only=True):
    """A call that the model made earlier; one that is incomplete was not carried out, and needs no output."""

    tool: ClassVar[ClientKind]

    call_id: str
    status: Status = "completed"

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        raise NotImplementedError


class ShellCallItem(ActionCallItem, tag="shell_call", kw_only=True):
    """Commands for the client's shell."""

    tool: ClassVar[ClientKind] = "shell"

    action: Json
    environment: Json | UnsetType = UNSET

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        return content_of(self.tool, self.action)


class LocalShellCallItem(ActionCallItem, tag="local_shell_call", kw_only=True):
    """A command for the client's machine."""

    tool: ClassVar[ClientKind] = "local_shell"

    action: Json

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        return content_of(self.tool, self.action)


class ApplyPatchCallItem(ActionCallItem, tag="apply_patch_call", kw_only=True):
    """A change of one of the client's files."""

    tool: ClassVar[ClientKind] = "apply_patch"

    operation: Json

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        return content_of(self.tool, self.operation)


class ToolSearchCallItem(InputItem, tag="tool_search_call"):
    """A search for tools. Only one that the client does is a call that the model is shown."""

    tool: ClassVar[ClientKind] = "tool_search"

    call_id: str | None
    arguments: Raw
    execution: Execution
    status: Status = "completed"

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        return bytes(self.arguments).decode()

    @property
    def is_shown(self) -> bool:
        """Whether it adds anything to a prompt."""
        return self.execution == "client"


class ActionOutputItem(InputItem):
    """The output of such a call."""

    call_id: str

    @property
    def text(self) -> str:
        """The text that the model is told."""
        raise NotImplementedError


class ShellCallOutputItem(ActionOutputItem, tag="shell_call_output", kw_only=True):
    """The output of commands, and how they ended."""

    output: list[Json]
    status: str = "completed"
    max_output_length: int | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        """The text that the model is told."""
        return "\n".join(map(_printed, self.output))


class LocalShellCallOutputItem(ActionOutputItem, tag="local_shell_call_output", kw_only=True):
    """The output of a command."""

    output: str
    status: str = "completed"

    @property
    def text(self) -> str:
        """The text that the model is told."""
        return self.output


class ApplyPatchCallOutputItem(ActionOutputItem, tag="apply_patch_call_output", kw_only=True):
    """Whether a file was changed."""

    status: Literal["completed", "failed"]
    output: str | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        """The text that the model is told."""
        said = self.output or ""
        if self.status == "failed":
            return f"The patch failed: {said}" if said else "The patch failed."
        return said or "Done."


class ToolSearchOutputItem(InputItem, tag="tool_search_output"):
    """Tools that a search found, as they are echoed: the model may call them from here on."""

    call_id: str | None
    tools: list[Any]
    execution: Execution
    status: str = "completed"

    @property
    def text(self) -> str:
        """The text that the model is told: the names of the tools. Their declarations stand with those of all tools."""
        names = [name for tool in self.tools for name in _names(tool, FUNCTIONS)]
        return f"Loaded: {', '.join(names)}." if names else "No tools were found."


def _printed(output: Json) -> str:
    """The output of a command, and its end: a failure, a timeout, or an exit without any output."""
    said = [text.removesuffix("\n") for text in (output["stdout"], output["stderr"]) if text]
    outcome: Json = output.get("outcome") or {"type": "exit", "exit_code": 0}
    if outcome["type"] == "timeout":
        said.append("[It was stopped: it took too long.]")
    elif outcome["exit_code"] or not said:
        said.append(f"[Exit code {outcome['exit_code']}.]")
    return "\n".join(said)


class _Named(msgspec.Struct):
    type: str = ""
    name: str = ""
    server_label: Any = None
    tools: list[Raw] | None = None


def _names(tool: object, namespace: str) -> Iterator[str]:
    """The names by which the model may call a tool, as it is listed."""
    named = msgspec.json.decode(tool if isinstance(tool, Raw) else msgspec.json.encode(tool), type=_Named)
    if named.type == "namespace":
        for inside in named.tools or ():
            yield from _names(inside, named.name)
    elif named.type in ("function", "custom"):
        yield f"{namespace}.{named.name}"
    else:
        yield named.server_label if isinstance(named.server_label, str) and named.server_label else named.type


# --- as they are sent ---


class ShellAction(msgspec.Struct):
    """Lines of shell, and their bounds."""

    commands: Annotated[list[str], Meta(max_length=MAX_COMMANDS)]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class ExecAction(msgspec.Struct):
    """A program and how it runs."""

    command: Annotated[list[str], Meta(max_length=MAX_COMMANDS)]
    type: Literal["exec"] = "exec"
    env: Annotated[dict[str, str], Meta(max_length=MAX_ENV)] | None = None
    timeout_ms: int | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    working_directory: str | UnsetType | None = UNSET


class CreateFile(msgspec.Struct, tag="create_file"):
    """A file that comes."""

    path: Path
    diff: str


class UpdateFile(msgspec.Struct, tag="update_file"):
    """A file that is changed."""

    path: Path
    diff: str


class DeleteFile(msgspec.Struct, tag="delete_file"):
    """A file that goes."""

    path: Path


class _ShellCall(msgspec.Struct):
    call_id: str
    action: Raw
    environment: Raw = ABSENT
    status: Status | None = None


class _LocalShellCall(msgspec.Struct):
    call_id: str
    action: Raw
    status: Status | None = None


class _ApplyPatchCall(msgspec.Struct):
    call_id: str
    operation: CreateFile | UpdateFile | DeleteFile
    status: Status | None = None


class _ToolSearchCall(msgspec.Struct):
    arguments: Raw
    call_id: str | None = None
    execution: Execution | None = None
    status: Status | None = None


class Exited(msgspec.Struct, tag="exit"):
    """A command that ended by itself."""

    exit_code: int


class TimedOut(msgspec.Struct, tag="timeout"):
    """A command that was stopped."""


class _Output(msgspec.Struct):
    stdout: str = ""
    stderr: str = ""
    outcome: Exited | TimedOut | None = None


class _ShellCallOutput(msgspec.Struct):
    call_id: str
    output: Raw
    max_output_length: int | UnsetType | None = UNSET
    status: Status | None = None


class _LocalShellCallOutput(msgspec.Struct):
    output: str
    call_id: str | None = None
    id: str | None = None
    status: Status | None = None


class _ApplyPatchCallOutput(msgspec.Struct):
    call_id: str
    status: Literal["completed", "failed"]
    output: str | UnsetType | None = UNSET


class _ToolSearchOutput(msgspec.Struct):
    tools: Raw
    call_id: str | None = None
    execution: Execution | None = None
    status: Status | None = None


def _bounded(raw: Raw, where: str) -> Raw:
    """The JSON, unless it is longer than a call may be. Raises InvalidRequest."""
    size = len(memoryview(raw))
    if size > MAX_ACTION_BYTES:
        raise invalid_value(where, f"{size} bytes", f"At most {MAX_ACTION_BYTES} are allowed.")
    return raw


def _shell_call(sent: _ShellCall, where: str, gathered: Gathered) -> ShellCallItem:
    at = f"{where}.environment"
    elsewhere = sent.environment != ABSENT
    return ShellCallItem(
        call_id=checked_call_id(sent.call_id, f"{where}.call_id"),
        action=msgspec.to_builtins(decode(_bounded(sent.action, f"{where}.action"), ShellAction, f"{where}.action")),
        status=sent.status or "completed",
        environment=decode(_bounded(sent.environment, at), Json, at) if elsewhere else UNSET,
    )


def _local_shell_call(sent: _LocalShellCall, where: str, gathered: Gathered) -> LocalShellCallItem:
    action = decode(_bounded(sent.action, f"{where}.action"), ExecAction, f"{where}.action")
    listed: Json = msgspec.to_builtins(action)
    return LocalShellCallItem(
        call_id=checked_call_id(sent.call_id, f"{where}.call_id"),
        action=listed | {"env": action.env or {}},
        status=sent.status or "completed",
    )


def _apply_patch_call(sent: _ApplyPatchCall, where: str, gathered: Gathered) -> ApplyPatchCallItem:
    return ApplyPatchCallItem(
        call_id=checked_call_id(sent.call_id, f"{where}.call_id"),
        operation=msgspec.to_builtins(sent.operation),
        status=sent.status or "completed",
    )


def _tool_search_call(sent: _ToolSearchCall, where: str, gathered: Gathered) -> ToolSearchCallItem:
    execution = _execution(sent.execution, sent.call_id, where)
    decode(_bounded(sent.arguments, f"{where}.arguments"), Json, f"{where}.arguments")
    return ToolSearchCallItem(
        call_id=sent.call_id, arguments=sent.arguments, execution=execution, status=sent.status or "completed"
    )


def _execution(execution: Execution | None, call_id: str | None, where: str) -> Execution:
    """The side that searched: by default the client where there is a call to answer. Raises InvalidRequest."""
    if call_id is not None:
        checked_call_id(call_id, f"{where}.call_id")
    elif execution == "client":
        raise missing(f"{where}.call_id", "A search that the client does has one.")
    return execution or ("server" if call_id is None else "client")


def _shell_call_output(sent: _ShellCallOutput, where: str, gathered: Gathered) -> ShellCallOutputItem:
    output: list[Json] = []
    for place, raw in enumerate(decode_list(sent.output, MAX_COMMANDS, f"{where}.output")):
        output.append(msgspec.to_builtins(decode(raw, _Output, f"{where}.output[{place}]")))
    return ShellCallOutputItem(
        call_id=checked_call_id(sent.call_id, f"{where}.call_id"),
        output=output,
        status=sent.status or "completed",
        max_output_length=sent.max_output_length,
    )


def _local_shell_call_output(sent: _LocalShellCallOutput, where: str, gathered: Gathered) -> LocalShellCallOutputItem:
    """The output of a local shell's call. OpenAI's has the id of the call as its own `id`."""
    given = {"call_id": sent.call_id, "id": sent.id}
    ids = [checked_call_id(id, f"{where}.{member}") for member, id in given.items() if id is not None]
    if not ids:
        raise missing(f"{where}.id", "It is the call_id of the call.")
    return LocalShellCallOutputItem(call_id=ids[0], output=sent.output, status=sent.status or "completed")


def _apply_patch_call_output(sent: _ApplyPatchCallOutput, where: str, gathered: Gathered) -> ApplyPatchCallOutputItem:
    call_id = checked_call_id(sent.call_id, f"{where}.call_id")
    return ApplyPatchCallOutputItem(call_id=call_id, status=sent.status, output=sent.output)


def _tool_search_output(sent: _ToolSearchOutput, where: str, gathered: Gathered) -> ToolSearchOutputItem:
    at = f"{where}.tools"
    execution = _execution(sent.execution, sent.call_id, where)
    item = ToolSearchOutputItem(
        call_id=sent.call_id,
        tools=listed_tools(decode_list(sent.tools, MAX_LOADED, at), at),
        execution=execution,
        status=sent.status or "completed",
    )
    gathered.loaded.append((at, sent.tools))
    return item


def listed_tools(tools: list[Raw], where: str) -> list[Any]:
    """Tools in the form in which their item is listed. Hosted ones are listed as they are echoed, so no key of
    somebody's server is kept. Raises InvalidRequest.
    """
    listed: list[Any] = []
    for place, tool in enumerate(tools):
        at = f"{where}[{place}]"
        hosted = decode(tool, Kind, at).type in HOSTED
        listed.append(echo_of_hosted(decode(tool, Json, at), at) if hosted else tool)
    return listed


ACTIONS = (
    ("shell_call", _ShellCall, _shell_call),
    ("shell_call_output", _ShellCallOutput, _shell_call_output),
    ("local_shell_call", _LocalShellCall, _local_shell_call),
    ("local_shell_call_output", _LocalShellCallOutput, _local_shell_call_output),
    ("apply_patch_call", _ApplyPatchCall, _apply_patch_call),
    ("apply_patch_call_output", _ApplyPatchCallOutput, _apply_patch_call_output),
    ("tool_search_call", _ToolSearchCall, _tool_search_call),
    ("tool_search_output", _ToolSearchOutput, _tool_search_output),
)
"""The types of these items, each with the struct that decodes it and the function that checks it."""
