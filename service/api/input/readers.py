"""A reader for each type of input item: from its JSON to a checked item.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them. What the prompt would need and isn't served is a 400 that names it. A reader yields between pieces of work;
what an item means for the request as a whole it writes into `Gathered`.

First come the items of tools that ran elsewhere, which clients replay: some have a place in a prompt, the others are
listed and passed over. Then those that change the request rather than say something: other tools, another effort or
format, a compaction, and references to stored items. Then what was said, and calls with their outputs.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.api.decoding import decode, decode_list, decoder_of
from service.api.input.content import read_parts, text_or_parts, text_part
from service.api.input.gathered import Gathered, Reading, decode_step
from service.api.input.items import (
    CALL_NAME,
    PASSED_OVER,
    AdditionalToolsItem,
    CodeInterpreterCallItem,
    CompactionItem,
    CompactionTriggerItem,
    ConfigurationUpdateItem,
    CustomToolCallItem,
    CustomToolCallOutputItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    ItemReference,
    McpCallItem,
    MessageItem,
    PassedOverItem,
    ReasoningItem,
    passed_over,
)
from service.api.request import ReasoningParam, TextParam
from service.api.tools.hosted import HOSTED, echo_of_hosted
from service.errors import invalid_value, missing, unsupported

MAX_CODE_OUTPUTS = 1024

_ABSENT = Raw(b"null")


class _Output(msgspec.Struct):
    type: str
    logs: str | None = None
    url: str | None = None


class _CodeInterpreterCall(msgspec.Struct):
    code: str | None = None
    container_id: str | None = None
    outputs: Raw = _ABSENT
    status: str | None = None


class _McpCall(msgspec.Struct):
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Raw | UnsetType = UNSET
    status: str | None = None


_CODE_OUTPUT = decoder_of(_Output)
_CODE_INTERPRETER_CALL = decoder_of(_CodeInterpreterCall)
_MCP_CALL = decoder_of(_McpCall)


def read_code_interpreter_call(raw: Raw, where: str, gathered: Gathered) -> Reading[CodeInterpreterCallItem]:
    sent: _CodeInterpreterCall = yield from decode_step(raw, _CODE_INTERPRETER_CALL, where)
    outputs: list[dict[str, Any]] | None = None
    if sent.outputs != _ABSENT:
        outputs = []
        for place, output in enumerate(decode_list(sent.outputs, MAX_CODE_OUTPUTS, f"{where}.outputs")):
            read = decode(output, _CODE_OUTPUT, f"{where}.outputs[{place}]")
            said = {"logs": read.logs or ""} if read.type == "logs" else {"url": read.url}
            outputs.append({"type": read.type, **said})
    return CodeInterpreterCallItem(sent.code, sent.container_id or "", outputs, sent.status or "completed")


def read_mcp_call(raw: Raw, where: str, gathered: Gathered) -> Reading[McpCallItem]:
    sent: _McpCall = yield from decode_step(raw, _MCP_CALL, where)
    status = sent.status or "completed"
    return McpCallItem(sent.server_label, sent.name, sent.arguments, sent.output, sent.error, status)


def read_passed_over(kind: str, members: tuple[str, ...]) -> "Callable[[Raw, str, Gathered], Reading[InputItem]]":
    decoder = decoder_of(passed_over(kind, members))

    def read(raw: Raw, where: str, gathered: Gathered) -> Reading[PassedOverItem]:
        return (yield from decode_step(raw, decoder, where))

    return read


MAX_ITEM_ID_CHARS = 256
MAX_ADDED_TOOLS = 1024
"""The most tools that one item may add; tools.py holds all of them together to its own limit."""


class _Compaction(msgspec.Struct):
    encrypted_content: str


class _AdditionalTools(msgspec.Struct):
    tools: Raw
    role: Literal["developer"] = "developer"


class _ConfigurationUpdate(msgspec.Struct):
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None


class _Reference(msgspec.Struct):
    id: str


class _Tool(msgspec.Struct):
    type: str | None = None


_COMPACTION = decoder_of(_Compaction)
_ADDITIONAL_TOOLS = decoder_of(_AdditionalTools)
_CONFIGURATION_UPDATE = decoder_of(_ConfigurationUpdate)
_REFERENCE = decoder_of(_Reference)
_TOOL = decoder_of(_Tool)
_ANY_OBJECT = decoder_of(dict[str, Any])


def read_compaction(raw: Raw, where: str, gathered: Gathered) -> Reading[CompactionItem]:
    sent: _Compaction = yield from decode_step(raw, _COMPACTION, where)
    return CompactionItem(sent.encrypted_content)


def read_compaction_trigger(raw: Raw, where: str, gathered: Gathered) -> Reading[CompactionTriggerItem]:
    gathered.trigger = gathered.trigger or where
    yield from ()
    return CompactionTriggerItem()


def read_additional_tools(raw: Raw, where: str, gathered: Gathered) -> Reading[AdditionalToolsItem]:
    """Hosted tools are listed as they are echoed: a key of somebody's server isn't kept."""
    sent: _AdditionalTools = yield from decode_step(raw, _ADDITIONAL_TOOLS, where)
    at = f"{where}.tools"
    listed: list[Any] = []
    for place, tool in enumerate(decode_list(sent.tools, MAX_ADDED_TOOLS, at)):
        hosted = decode(tool, _TOOL, f"{at}[{place}]").type in HOSTED
        listed.append(echo_of_hosted(decode(tool, _ANY_OBJECT, f"{at}[{place}]"), f"{at}[{place}]") if hosted else tool)
        yield
    gathered.added.append((at, sent.tools))
    return AdditionalToolsItem(listed)


def read_configuration_update(raw: Raw, where: str, gathered: Gathered) -> Reading[ConfigurationUpdateItem]:
    sent: _ConfigurationUpdate = yield from decode_step(raw, _CONFIGURATION_UPDATE, where)
    item = ConfigurationUpdateItem()
    if sent.reasoning is not None and sent.reasoning.effort is not None:
        gathered.effort = sent.reasoning.effort
        item.reasoning = {"effort": sent.reasoning.effort}
    if sent.text is not None and sent.text.format != _ABSENT:
        gathered.format = (sent.text.format, f"{where}.text.format")
        item.text = {"format": sent.text.format}
    return item


def read_item_reference(raw: Raw, where: str, gathered: Gathered) -> Reading[ItemReference]:
    sent: _Reference = yield from decode_step(raw, _REFERENCE, where)
    if not 1 <= len(sent.id) <= MAX_ITEM_ID_CHARS:
        raise invalid_value(f"{where}.id", sent.id, f"It has 1 to {MAX_ITEM_ID_CHARS} characters.")
    if sent.id in gathered.references:
        raise invalid_value(f"{where}.id", sent.id, "This item is in the input already; refer to each item once.")
    gathered.references[sent.id] = None
    return ItemReference(reference=sent.id)


MAX_CALL_ID_CHARS = 256


class _Kind(msgspec.Struct):
    type: str | None = None
    role: Raw = _ABSENT
    id: Raw = _ABSENT


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
    content: Raw = _ABSENT
    summary: Raw = _ABSENT
    encrypted_content: str | None = None


_KIND = decoder_of(_Kind)
_MESSAGE = decoder_of(_Message)
_FUNCTION_CALL = decoder_of(_FunctionCall)
_CUSTOM_TOOL_CALL = decoder_of(_CustomToolCall)
_CALL_OUTPUT = decoder_of(_CallOutput)
_REASONING = decoder_of(_Reasoning)


def read_item(raw: Raw, where: str, gathered: Gathered) -> Reading[InputItem]:
    """Read the item at `where`. Raises InvalidRequest, naming the member."""
    kind: _Kind = yield from decode_step(raw, _KIND, where)
    name = kind.type or ("message" if kind.role != _ABSENT else "item_reference" if kind.id != _ABSENT else None)
    if name is None:
        raise missing(f"{where}.type", "A message needs at least 'role' and 'content'.")
    reader = READERS.get(name)
    if reader is None:
        raise unsupported(f"{where}.type", name, f"Items that the model reads are: {', '.join(_SHOWN)}.")
    return (yield from reader(raw, where, gathered))


# --- what is said and thought ---


def _message(raw: Raw, where: str, gathered: Gathered) -> Reading[MessageItem]:
    sent: _Message = yield from decode_step(raw, _MESSAGE, where)
    kind = "output_text" if sent.role == "assistant" else "input_text"
    content = text_or_parts(sent.content, kind, f"{where}.content", images=gathered.images == "placeholder")
    if isinstance(content, str):
        content = [text_part(kind, content)]
    return MessageItem(sent.role, content, phase=sent.phase or UNSET)


def _reasoning(raw: Raw, where: str, gathered: Gathered) -> Reading[ReasoningItem]:
    sent: _Reasoning = yield from decode_step(raw, _REASONING, where)
    content = read_parts(sent.content, f"{where}.content")
    summary = read_parts(sent.summary, f"{where}.summary")
    return ReasoningItem(
        content=[{"type": "reasoning_text", "text": part.text or ""} for part in content],
        summary=[{"type": "summary_text", "text": part.text or ""} for part in summary],
        encrypted_content=UNSET if sent.encrypted_content is None else sent.encrypted_content,
    )


# --- calls of the caller's tools ---


def _function_call(raw: Raw, where: str, gathered: Gathered) -> Reading[FunctionCallItem]:
    sent: _FunctionCall = yield from decode_step(raw, _FUNCTION_CALL, where)
    name = _checked_name(sent.name, f"{where}.name")
    namespace = _checked_namespace(sent.namespace, where)
    return FunctionCallItem(_checked_call_id(sent.call_id, where), name, sent.arguments, namespace=namespace)


def _custom_tool_call(raw: Raw, where: str, gathered: Gathered) -> Reading[CustomToolCallItem]:
    sent: _CustomToolCall = yield from decode_step(raw, _CUSTOM_TOOL_CALL, where)
    name = _checked_name(sent.name, f"{where}.name")
    namespace = _checked_namespace(sent.namespace, where)
    return CustomToolCallItem(_checked_call_id(sent.call_id, where), name, sent.input, namespace=namespace)


def _function_call_output(raw: Raw, where: str, gathered: Gathered) -> Reading[FunctionCallOutputItem]:
    call_id, output = yield from _call_output(raw, where, gathered)
    return FunctionCallOutputItem(call_id, output)


def _custom_tool_call_output(raw: Raw, where: str, gathered: Gathered) -> Reading[FunctionCallOutputItem]:
    call_id, output = yield from _call_output(raw, where, gathered)
    return CustomToolCallOutputItem(call_id, output)


def _call_output(raw: Raw, where: str, gathered: Gathered) -> Reading[tuple[str, str | list[dict[str, Any]]]]:
    sent: _CallOutput = yield from decode_step(raw, _CALL_OUTPUT, where)
    images = gathered.images == "placeholder"
    output = text_or_parts(sent.output, "input_text", f"{where}.output", images=images)
    return _checked_call_id(sent.call_id, where), output


def _checked_name(name: str, where: str) -> str:
    if not CALL_NAME.fullmatch(name):
        raise invalid_value(where, name, "A tool's name has 1 to 128 of the characters A-Z, a-z, 0-9, _, . and -.")
    return name


def _checked_namespace(namespace: str | None, where: str) -> str | UnsetType:
    return UNSET if namespace is None else _checked_name(namespace, f"{where}.namespace")


def _checked_call_id(call_id: str, where: str) -> str:
    if not 1 <= len(call_id) <= MAX_CALL_ID_CHARS:
        raise invalid_value(f"{where}.call_id", call_id, f"It has 1 to {MAX_CALL_ID_CHARS} characters.")
    return call_id


READERS: dict[str, Callable[[Raw, str, Gathered], Reading[InputItem]]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _custom_tool_call_output,
    "reasoning": _reasoning,
    "item_reference": read_item_reference,
    "compaction": read_compaction,
    "compaction_trigger": read_compaction_trigger,
    "additional_tools": read_additional_tools,
    "configuration_update": read_configuration_update,
    "code_interpreter_call": read_code_interpreter_call,
    "mcp_call": read_mcp_call,
    **{kind: read_passed_over(kind, members) for kind, members in PASSED_OVER.items()},
}
"""The types of items that are read, and who reads them."""

_SHOWN = ("message", "reasoning", "function_call", "custom_tool_call", "their outputs", "item_reference", "compaction")
"""What is said of the types in a refusal."""
