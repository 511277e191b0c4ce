"""Segments to items: which emitter the message with a header gets.

Here are also calls of tools that the model was trained with, Python and a browser, and of a search of files where an
operator's server stands for one, as items: where this service runs them. The API has no event for the queries of a
search, so nobody is told what the model writes before it is complete.

An outcome's `shown` has the result of a call, by the names of the item's members. A call that nobody runs is in
undeclared.py.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from service.api import events
from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import CodeInterpreterCall, FileSearchCall, ItemStatus, Logprob, WebSearchCall
from service.api.tools.callee import FILE_SEARCH, Callee, Hosted, HostedKind
from service.api.tools.hosted import queries_of
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
from service.responses.output.hosted import ApprovalRequestEmitter, HostedCallEmitter, ServerCallEmitter
from service.responses.output.rules import Rules
from service.responses.output.text import CompactionEmitter, MessageEmitter, ReasoningEmitter
from service.responses.output.undeclared import (
    CodeInterpreterCallEmitter,
    McpCallEmitter,
    WebSearchCallEmitter,
    action_of,
    builtin,
)
from store.turn import Messages


class FileSearchCallEmitter(HostedCallEmitter):
    """A search of files; its queries are shown at the end."""

    kind = f"{FILE_SEARCH}_call"
    in_progress = events.FileSearchCallInProgress
    completed = events.FileSearchCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing."""
        self._pieces.append(delta)
        return []

    def call(self) -> list[Event]:
        """The query is complete, and the search begins."""
        return [*super().call(), events.FileSearchCallSearching(self._id, self._index)]

    def _item(self, status: ItemStatus) -> FileSearchCall:
        return FileSearchCall(self._id, [] if status == "in_progress" else queries_of(self._said), status)

    def _written(self) -> list[Event]:
        return []

    def _ended(self, outcome: Outcome) -> FileSearchCall:
        item = msgspec.structs.replace(self._item("completed"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)


class PythonCallEmitter(HostedCallEmitter):
    """Code that runs in a container."""

    kind = "code_interpreter_call"
    in_progress = events.CodeInterpreterCallInProgress
    completed = events.CodeInterpreterCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A code delta."""
        self._pieces.append(delta)
        return [events.CodeInterpreterCallCodeDelta(self._id, self._index, delta)]

    def call(self) -> list[Event]:
        """The code is whole, and runs."""
        return [*super().call(), events.CodeInterpreterCallInterpreting(self._id, self._index)]

    def _item(self, status: ItemStatus) -> CodeInterpreterCall:
        return CodeInterpreterCall(self._id, self._said, status, self.tool.server)

    def _written(self) -> list[Event]:
        return [events.CodeInterpreterCallCodeDone(self._id, self._index, self._said)]

    def _ended(self, outcome: Outcome) -> CodeInterpreterCall:
        item = msgspec.structs.replace(self._item("in_progress"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)


class BrowserCallEmitter(HostedCallEmitter):
    """A call of one of the browser's tools; its action is shown at the end."""

    kind = "web_search_call"
    in_progress = events.WebSearchCallInProgress
    completed = events.WebSearchCallCompleted

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: the API has no event for it."""
        self._pieces.append(delta)
        return []

    def call(self) -> list[Event]:
        """The action is complete, and is carried out."""
        return [*super().call(), events.WebSearchCallSearching(self._id, self._index)]

    def _item(self, status: ItemStatus) -> WebSearchCall:
        action = msgspec.UNSET if status == "in_progress" else action_of(self.tool.tool, self._said)
        return WebSearchCall(self._id, status, action)

    def _written(self) -> list[Event]:
        return []

    def _ended(self, outcome: Outcome) -> WebSearchCall:
        item = msgspec.structs.replace(self._item("completed"), status=outcome.status)
        return msgspec.structs.replace(item, **outcome.shown)


_EMITTERS: Mapping[HostedKind, Callable[[str, int, Hosted], HostedCallEmitter]] = MappingProxyType(
    {
        "mcp": ServerCallEmitter,
        "python": PythonCallEmitter,
        "browser": BrowserCallEmitter,
        "file_search": FileSearchCallEmitter,
    }
)


def hosted_emitter(response_id: str, index: int, tool: Hosted) -> HostedCallEmitter:
    """The emitter of a call of a tool that the service runs."""
    return _EMITTERS[tool.kind](response_id, index, tool)


class Making(msgspec.Struct, frozen=True):
    """The parts that all items of a response are made with.

    `seal` takes a kind and a payload (sealed.py), for the tenant; only what `rules` want sealed needs it. `kept` are
    the messages that a compaction item carries beside its summary. `cites` are the parts of outcomes that an answer may
    cite, and `displays` the pages of the browser that it may cite.
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
    that don't exist are preambles, so that text for the user stays visible. Of a compacting response, the
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
