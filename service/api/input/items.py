"""Input items that have been checked, in the form in which they are listed again; made by readers.py alone."""

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.api.input.content import text_of
from service.errors import invalid_value

CALL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""What a call's function may be named, by a client or by the model; a declared one has less to choose from."""

MAX_CALL_ID_CHARS = 256


def checked_name(name: str, where: str) -> str:
    """The name of a tool that is called. Raises InvalidRequest."""
    if not CALL_NAME.fullmatch(name):
        raise invalid_value(where, name, "A tool's name has 1 to 128 of the characters A-Z, a-z, 0-9, _, . and -.")
    return name


def checked_call_id(call_id: str, where: str) -> str:
    """The id of a call. Raises InvalidRequest."""
    if not 1 <= len(call_id) <= MAX_CALL_ID_CHARS:
        raise invalid_value(where, call_id, f"It has 1 to {MAX_CALL_ID_CHARS} characters.")
    return call_id


class InputItem(msgspec.Struct, tag_field="type", kw_only=True):
    """What all input items have; `id` is given by `read.identify`."""

    id: str = ""

    @property
    def kind(self) -> str:
        """Its `type`."""
        return str(self.__struct_config__.tag)

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return 0


class MessageItem(InputItem, tag="message"):
    """A message of the caller's, or one of the assistant's that the caller replays."""

    role: Literal["user", "assistant", "system", "developer"]
    content: list[dict[str, Any]]
    status: str = "completed"
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return len(self.content)

    @property
    def text(self) -> str:
        """What a prompt shows of its parts."""
        return text_of(self.content)


class FunctionCallItem(InputItem, tag="function_call"):
    """A call that the model made earlier."""

    call_id: str
    name: str
    arguments: str
    status: str = "completed"
    namespace: str | UnsetType = UNSET


class CustomToolCallItem(InputItem, tag="custom_tool_call"):
    """A call of a custom tool that the model made earlier."""

    call_id: str
    name: str
    input: str
    status: str = "completed"
    namespace: str | UnsetType = UNSET


class FunctionCallOutputItem(InputItem, tag="function_call_output"):
    """What the function returned."""

    call_id: str
    output: str | list[dict[str, Any]]
    status: str = "completed"

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return 0 if isinstance(self.output, str) else len(self.output)

    @property
    def text(self) -> str:
        """The output as one text."""
        return self.output if isinstance(self.output, str) else text_of(self.output)


class CustomToolCallOutputItem(FunctionCallOutputItem, tag="custom_tool_call_output"):
    """What the custom tool returned."""


class ReasoningItem(InputItem, tag="reasoning"):
    """What the model thought earlier; with a summary alone it adds nothing to the prompt."""

    content: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    status: str = "completed"
    encrypted_content: str | UnsetType = UNSET

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return len(self.content) + len(self.summary)

    @property
    def text(self) -> str:
        """The raw reasoning."""
        return "\n".join(part["text"] for part in self.content)


class CompactionItem(InputItem, tag="compaction"):
    """A conversation in short; nothing before it is in the prompt."""

    encrypted_content: str


class CompactionTriggerItem(InputItem, tag="compaction_trigger"):
    """The wish for a compaction of all before it."""


class AdditionalToolsItem(InputItem, tag="additional_tools"):
    """Tools besides the request's, as they are echoed."""

    tools: list[Any]
    role: Literal["developer"] = "developer"


class ConfigurationUpdateItem(InputItem, tag="configuration_update"):
    """Another effort, or another form of the answer, for this request."""

    reasoning: dict[str, Any] | None = None
    text: dict[str, Raw] | None = None


class ItemReference(InputItem, tag="item_reference"):
    """An item that is stored; it is put in this one's place before the prompt is built."""

    reference: str = ""
    """The id of the stored item."""


class CodeInterpreterCallItem(InputItem, tag="code_interpreter_call"):
    """Code that a model had run elsewhere, or wanted to run here."""

    code: str | None = None
    container_id: str = ""
    outputs: list[dict[str, Any]] | None = None
    status: str = "completed"


class McpCallItem(InputItem, tag="mcp_call"):
    """A call of a tool that a model made elsewhere, or wanted to make here."""

    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Raw | UnsetType = UNSET
    status: str = "completed"


class IgnoredItem(InputItem):
    """An item that clients replay and that says nothing to the model; its members are listed as they were sent."""


IGNORED: dict[str, tuple[str, ...]] = {
    "web_search_call": ("action", "status"),
    "file_search_call": ("queries", "results", "status"),
    "image_generation_call": ("result", "revised_prompt", "status"),
    "mcp_list_tools": ("server_label", "tools", "error"),
    "mcp_approval_request": ("server_label", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id", "approve", "reason"),
    "local_shell_call": ("call_id", "action", "status"),
    "local_shell_call_output": ("output", "status"),
    "tool_search_call": ("call_id", "arguments", "execution", "status"),
    "tool_search_output": ("call_id", "execution", "status"),
}
"""Items of tools that ran elsewhere, and which of their members are listed. None of them holds what the tool found
in a form that a prompt has a place for."""


def ignored(kind: str, members: tuple[str, ...]) -> "type[IgnoredItem]":
    """The struct of a kind that is ignored: each member is JSON that nobody reads, or not there."""
    fields = [(member, Raw | UnsetType, UNSET) for member in members]
    made: Any = msgspec.defstruct(f"Ignored_{kind}", fields, bases=(IgnoredItem,), tag=kind, kw_only=True)
    return made
