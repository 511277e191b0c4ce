"""Readers of the items of tools that ran elsewhere, which clients replay: some have a place in a prompt, and the others
are listed and passed over.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.gathering import Gathered, Reading, decode_step
from service.protocol.input_items import (
    CodeInterpreterCallItem,
    InputItem,
    McpCallItem,
    PassedOverItem,
    passed_over,
)

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
