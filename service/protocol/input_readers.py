"""A reader for each type of input item: from its JSON to a checked item.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them. What the prompt would need and isn't served is a 400 that names it. A reader yields between pieces of work;
what an item means for the request as a whole it writes into `Gathered`.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.protocol.content_parts import read_parts, text_or_parts, text_part
from service.protocol.decoding import decoder_of
from service.protocol.errors import invalid_value, missing, unsupported
from service.protocol.foreign_items import read_code_interpreter_call, read_mcp_call, read_passed_over
from service.protocol.gathering import Gathered, Reading, decode_step
from service.protocol.input_items import (
    CALL_NAME,
    PASSED_OVER,
    CustomToolCallItem,
    CustomToolCallOutputItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    MessageItem,
    ReasoningItem,
)
from service.protocol.request_items import (
    read_additional_tools,
    read_compaction,
    read_compaction_trigger,
    read_configuration_update,
    read_item_reference,
)

MAX_CALL_ID_CHARS = 256

_ABSENT = Raw(b"null")


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
