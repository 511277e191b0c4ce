"""Segments to items: which emitter the message with a header gets."""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.api.tools.callee import Callee
from service.browser.page import Display
from service.harmony.header import Header
from service.responses.output.actions import (
    ApplyPatchCallEmitter,
    LocalShellCallEmitter,
    ShellCallEmitter,
    ToolSearchCallEmitter,
)
from service.responses.output.calls import CustomToolCallEmitter, FunctionCallEmitter
from service.responses.output.citing import citing_of
from service.responses.output.emitter import Emitter, Seal
from service.responses.output.hosted import ApprovalRequestEmitter
from service.responses.output.rules import Rules
from service.responses.output.text import CompactionEmitter, MessageEmitter, ReasoningEmitter
from service.responses.output.trained import hosted_emitter
from service.responses.output.undeclared import (
    CodeInterpreterCallEmitter,
    McpCallEmitter,
    WebSearchCallEmitter,
    builtin,
)
from store.turn import Messages


class Making(msgspec.Struct, frozen=True):
    """What all items of a response are made with.

    `seal` takes a kind and a payload (sealed.py), for the tenant; only what `rules` want sealed needs it. `kept` are
    the messages that a compaction item carries beside its summary. `cites` is what an answer may cite of the outcomes,
    and `displays` what it may cite of what the browser has shown.
    """

    response_id: str
    rules: Rules
    seal: Seal | None = None
    kept: Messages = ()
    cites: tuple[Mapping[str, Any], ...] = ()
    displays: tuple[Display, ...] = ()


def emitter_for(making: Making, header: Header, index: int) -> Emitter:
    """The kind of item that a message with this header becomes, at `index` of the output.

    A recipient decides before the channel does, because models call tools on any channel (`Rules.called`). Where there
    is none, or none that can be meant, analysis is reasoning, final and no channel an answer; commentary and channels
    that don't exist are preambles, so that what was said to the user stays visible. Of a compacting response, the
    answer is its compaction item.
    """
    rules, response_id = making.rules, making.response_id
    called = rules.called(header.recipient, header.channel)
    if isinstance(called, Callee) and called.hosted is not None and called.hosted.approval:
        return ApprovalRequestEmitter(response_id, index, called.hosted, header.channel)
    if isinstance(called, Callee) and called.hosted is not None:
        return hosted_emitter(response_id, index, called.hosted)
    if isinstance(called, Callee):
        return _own_call(response_id, index, called)
    if called is not None:
        return _undeclared(response_id, index, called)
    if header.channel == "analysis":
        return ReasoningEmitter(
            response_id, index, summarised=rules.summary is not None, seal=making.seal if rules.sealed else None
        )
    answers = header.channel in (None, "final")
    if answers and rules.compacting and making.seal is not None:
        return CompactionEmitter(response_id, index, making.seal, making.kept, rules.newest)
    citing = citing_of(making.cites, making.displays) if answers and rules.answer is None else None
    return MessageEmitter(response_id, index, "final_answer" if answers else "commentary", citing)


def _own_call(response_id: str, index: int, callee: Callee) -> Emitter:
    """The item for a call of a tool that the client runs."""
    match callee.kind:
        case "function":
            return FunctionCallEmitter(response_id, index, callee)
        case "custom":
            return CustomToolCallEmitter(response_id, index, callee)
        case "tool_search":
            return ToolSearchCallEmitter(response_id, index)
        case "shell":
            return ShellCallEmitter(response_id, index)
        case "local_shell":
            return LocalShellCallEmitter(response_id, index)
        case "apply_patch":
            return ApplyPatchCallEmitter(response_id, index)


def _undeclared(response_id: str, index: int, name: str) -> Emitter:
    """The item for a call of an undeclared tool."""
    namespace, _, tool = builtin(name).partition(".")
    if namespace == "python":
        return CodeInterpreterCallEmitter(response_id, index)
    if namespace == "browser":
        return WebSearchCallEmitter(response_id, index, tool)
    return McpCallEmitter(response_id, index, name)
