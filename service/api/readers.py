"""A reader for each type of input item: from its JSON to a checked item.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them. A member that the prompt would need and that isn't served is a 400 that names it. A reader is a struct, into
which the item is decoded, and a plain function that checks it. The function writes the item's effects on the request as
a whole into `Gathered`.

First come the items of tools that ran elsewhere, which clients replay. Then those that change the request rather than
say something: other tools, another effort or format, a compaction, and references to stored items. Then come messages
and reasoning, and calls with their outputs.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.api.actions import ACTIONS, listed_tools
from service.api.content import read_parts, text_or_parts, text_part
from service.api.items import (
    FOREIGN,
    AdditionalToolsItem,
    CodeInterpreterCallItem,
    CompactionItem,
    CompactionTriggerItem,
    ConfigurationUpdateItem,
    CustomToolCallItem,
    CustomToolCallOutputItem,
    ForeignItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    Gathered,
    InputItem,
    ItemReference,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    MessageItem,
    ReasoningItem,
    checked_call_id,
    checked_name,
    foreign_kind,
)
from service.api.request import ReasoningParam, TextParam
from service.api.tools.read import check_bytes
from service.decoding import ABSENT, decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing, unsupported

MAX_CODE_OUTPUTS = 1024

MAX_REASON_CHARS = 4096
"""The most characters of the reason for an approval: the model is told the reason as it is."""


class _Output(msgspec.Struct):
    type: str
    logs: str | None = None
    url: str | None = None


class _CodeInterpreterCall(msgspec.Struct):
    code: str | None = None
    container_id: str | None = None
    outputs: Raw = ABSENT
    status: str | None = None


class _McpCall(msgspec.Struct):
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Raw | UnsetType = UNSET
    status: str | None = None
    approval_request_id: str | None = None


class _McpApprovalRequest(msgspec.Struct):
    server_label: str
    name: str
    arguments: str
    id: str | None = None


class _McpApprovalResponse(msgspec.Struct):
    approval_request_id: str
    approve: bool
    reason: str | None = None


def _code_interpreter_call(sent: _CodeInterpreterCall, where: str, gathered: Gathered) -> CodeInterpreterCallItem:
    outputs: list[dict[str, Any]] | None = None
    if sent.outputs != ABSENT:
        outputs = []
        for place, output in enumerate(decode_list(sent.outputs, MAX_CODE_OUTPUTS, f"{where}.outputs")):
            read = decode(output, _Output, f"{where}.outputs[{place}]")
            said = {"logs": read.logs or ""} if read.type == "logs" else {"url": read.url}
            outputs.append({"type": read.type, **said})
    return CodeInterpreterCallItem(sent.code, sent.container_id or "", outputs, sent.status or "completed")


def _mcp_call(sent: _McpCall, where: str, gathered: Gathered) -> McpCallItem:
    status = sent.status or "completed"
    return McpCallItem(
        sent.server_label, sent.name, sent.arguments, sent.output, sent.error, status, sent.approval_request_id
    )


def _mcp_approval_request(sent: _McpApprovalRequest, where: str, gathered: Gathered) -> McpApprovalRequestItem:
    return McpApprovalRequestItem(sent.server_label, sent.name, sent.arguments, id=sent.id or "")


def _mcp_approval_response(sent: _McpApprovalResponse, where: str, gathered: Gathered) -> McpApprovalResponseItem:
    if sent.reason is not None and len(sent.reason) > MAX_REASON_CHARS:
        expected = f"It has at most {MAX_REASON_CHARS} characters."
        raise invalid_value(f"{where}.reason", f"{len(sent.reason)} characters", expected)
    return McpApprovalResponseItem(sent.approval_request_id, sent.approve, sent.reason)


def _foreign(sent: ForeignItem, where: str, gathered: Gathered) -> ForeignItem:
    for member in sent.foreign.told:
        raw: Raw | UnsetType = getattr(sent, member)
        if not isinstance(raw, UnsetType) and bytes(memoryview(raw)[:1]) == b'"':
            decode(raw, str, f"{where}.{member}")
    return sent


MAX_ITEM_ID_CHARS = 256
MAX_ADDED_TOOLS = 1024
"""The most tools that items may add; tools/read.py has a limit for these and those of the request together."""


class _Compaction(msgspec.Struct):
    encrypted_content: str


class _Trigger(msgspec.Struct):
    pass


class _AdditionalTools(msgspec.Struct):
    tools: Raw
    role: Literal["developer"] = "developer"


class _ConfigurationUpdate(msgspec.Struct):
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None


class _Reference(msgspec.Struct):
    id: str


def _compaction(sent: _Compaction, where: str, gathered: Gathered) -> CompactionItem:
    return CompactionItem(sent.encrypted_content)


def _compaction_trigger(sent: _Trigger, where: str, gathered: Gathered) -> CompactionTriggerItem:
    gathered.trigger = gathered.trigger or where
    return CompactionTriggerItem()


def _additional_tools(sent: _AdditionalTools, where: str, gathered: Gathered) -> AdditionalToolsItem:
    """The item. Its hosted tools are listed as they are echoed: a key of somebody's server isn't kept."""
    at = f"{where}.tools"
    gathered.added_bytes += len(memoryview(sent.tools))
    check_bytes(gathered.added_bytes, gathered.tools_bytes)
    tools = decode_list(sent.tools, MAX_ADDED_TOOLS, at)
    gathered.added_tools += len(tools)
    if gathered.added_tools > MAX_ADDED_TOOLS:
        raise InvalidRequest(
            f"Too many tools in 'additional_tools': {gathered.added_tools}, at most {MAX_ADDED_TOOLS} are allowed.",
            code="invalid_value",
            param=at,
        )
    listed = listed_tools(tools, at)
    gathered.added.append((at, sent.tools))
    return AdditionalToolsItem(listed)


def _configuration_update(sent: _ConfigurationUpdate, where: str, gathered: Gathered) -> ConfigurationUpdateItem:
    item = ConfigurationUpdateItem()
    if sent.reasoning is not None and sent.reasoning.effort is not None:
        gathered.effort = sent.reasoning.effort
        item.reasoning = {"effort": sent.reasoning.effort}
    if sent.text is not None and sent.text.format != ABSENT:
        gathered.format = (sent.text.format, f"{where}.text.format")
        item.text = {"format": sent.text.format}
    return item


def _item_reference(sent: _Reference, where: str, gathered: Gathered) -> ItemReference:
    if not 1 <= len(sent.id) <= MAX_ITEM_ID_CHARS:
        raise invalid_value(f"{where}.id", sent.id, f"It has 1 to {MAX_ITEM_ID_CHARS} characters.")
    if sent.id in gathered.references:
        raise invalid_value(f"{where}.id", sent.id, "This item is in the input already; refer to each item once.")
    gathered.references[sent.id] = None
    return ItemReference(reference=sent.id)


class _Kind(msgspec.Struct):
    type: str | None = None
    role: Raw = ABSENT
    id: Raw = ABSENT


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: Raw
    phase: Literal["commentary", "final_answer"] | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _CustomToolCall(msgspec.Struct):
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _CallOutput(msgspec.Struct):
    call_id: str
    output: Raw


class _Reasoning(msgspec.Struct):
    content: Raw = ABSENT
    summary: Raw = ABSENT
    encrypted_content: str | None = None


def reader_of(raw: Raw, where: str) -> "Reader":
    """The reader of the item at `where`. Raises InvalidRequest for a type that has none."""
    kind = decode(raw, _Kind, where)
    name = kind.type or ("message" if kind.role != ABSENT else "item_reference" if kind.id != ABSENT else None)
    if name is None:
        raise missing(f"{where}.type", "A message needs at least 'role' and 'content'.")
    if name not in READERS:
        raise unsupported(f"{where}.type", name, f"Items that the model reads are: {', '.join(_SHOWN)}.")
    return READERS[name]


# --- messages and reasoning ---


def _message(sent: _Message, where: str, gathered: Gathered) -> MessageItem:
    kind = "output_text" if sent.role == "assistant" else "input_text"
    content = text_or_parts(sent.content, kind, f"{where}.content", images=gathered.images == "placeholder")
    if isinstance(content, str):
        content = [text_part(kind, content)]
    return MessageItem(sent.role, content, phase=sent.phase or UNSET)


def _reasoning(sent: _Reasoning, where: str, gathered: Gathered) -> ReasoningItem:
    content = read_parts(sent.content, f"{where}.content")
    summary = read_parts(sent.summary, f"{where}.summary")
    return ReasoningItem(
        content=[{"type": "reasoning_text", "text": part.text or ""} for part in content],
        summary=[{"type": "summary_text", "text": part.text or ""} for part in summary],
        encrypted_content=UNSET if sent.encrypted_content is None else sent.encrypted_content,
    )


# --- calls of the caller's tools ---


def _function_call(sent: _FunctionCall, where: str, gathered: Gathered) -> FunctionCallItem:
    name = checked_name(sent.name, f"{where}.name")
    namespace = _namespace(sent.namespace, where)
    return FunctionCallItem(
        checked_call_id(sent.call_id, f"{where}.call_id"), name, sent.arguments, namespace=namespace
    )


def _custom_tool_call(sent: _CustomToolCall, where: str, gathered: Gathered) -> CustomToolCallItem:
    name = checked_name(sent.name, f"{where}.name")
    namespace = _namespace(sent.namespace, where)
    return CustomToolCallItem(checked_call_id(sent.call_id, f"{where}.call_id"), name, sent.input, namespace=namespace)


def _function_call_output(sent: _CallOutput, where: str, gathered: Gathered) -> FunctionCallOutputItem:
    return FunctionCallOutputItem(checked_call_id(sent.call_id, f"{where}.call_id"), _output(sent, where, gathered))


def _custom_tool_call_output(sent: _CallOutput, where: str, gathered: Gathered) -> FunctionCallOutputItem:
    return CustomToolCallOutputItem(checked_call_id(sent.call_id, f"{where}.call_id"), _output(sent, where, gathered))


def _output(sent: _CallOutput, where: str, gathered: Gathered) -> str | list[dict[str, Any]]:
    return text_or_parts(sent.output, "input_text", f"{where}.output", images=gathered.images == "placeholder")


def _namespace(namespace: str | None, where: str) -> str | UnsetType:
    return UNSET if namespace is None else checked_name(namespace, f"{where}.namespace")


class Reader(NamedTuple):
    """Decodes an item of one type, and makes the listed item of it."""

    sent: type[msgspec.Struct]
    read: Callable[[Any, str, Gathered], InputItem]


READERS: dict[str, Reader] = {
    kind: Reader(sent, read)
    for kind, sent, read in (
        ("message", _Message, _message),
        ("function_call", _FunctionCall, _function_call),
        ("function_call_output", _CallOutput, _function_call_output),
        ("custom_tool_call", _CustomToolCall, _custom_tool_call),
        ("custom_tool_call_output", _CallOutput, _custom_tool_call_output),
        ("reasoning", _Reasoning, _reasoning),
        ("item_reference", _Reference, _item_reference),
        ("compaction", _Compaction, _compaction),
        ("compaction_trigger", _Trigger, _compaction_trigger),
        ("additional_tools", _AdditionalTools, _additional_tools),
        ("configuration_update", _ConfigurationUpdate, _configuration_update),
        ("code_interpreter_call", _CodeInterpreterCall, _code_interpreter_call),
        ("mcp_call", _McpCall, _mcp_call),
        ("mcp_approval_request", _McpApprovalRequest, _mcp_approval_request),
        ("mcp_approval_response", _McpApprovalResponse, _mcp_approval_response),
        *ACTIONS,
        *((kind, foreign_kind(kind), _foreign) for kind in FOREIGN),
    )
}
"""The types of items that are read, and their readers."""

_SHOWN = ("message", "reasoning", "function_call", "custom_tool_call", "their outputs", "item_reference", "compaction")
"""The types that a refusal names."""
