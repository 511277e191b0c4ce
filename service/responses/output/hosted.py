"""Calls of tools that the service runs, or that nobody runs, as items; and the lists of tools that it read.

A call streams as it is sampled. Then the tool runs, and the item ends with the outcome, whose `shown` has the result by
the names of the item's members: no other item waits for anything but the model. A call that somebody has to approve is
a request for that, and no call. The API has no event for the queries of a search, so nobody is told what the model
writes before it is complete.

A call of an undeclared tool is an item of the same kinds: gpt-oss was trained with Python and a browser, and calls them
unasked. Nobody runs it, so a complete one has `failed`; one cut short is `incomplete` as any other item.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from service.api import events, ids
from service.api import response as shapes
from service.api.events import Event
from service.api.outcome import ApprovalRequest, Outcome
from service.api.tools.builtin import CODE_TYPE
from service.api.tools.callee import FILE_SEARCH, FUNCTIONS, Hosted, HostedKind
from service.api.tools.hosted import queries_of
from service.responses.output.emitter import Emitter
from service.responses.output.rules import ServerTools

_TOOLS = msgspec.json.Decoder(list[dict[str, Any]])
_BUILTIN = ("python", "browser.search", "browser.open", "browser.find")
_PREFIX = "mcp."
_UNKNOWN_TOOL = {"type": "mcp_protocol_error", "code": -32601, "message": "There is no such tool."}
"""The code is JSON-RPC's "method not found", which MCP uses."""


class HostedCallEmitter(Emitter):
    """A call of a tool that the service runs, or of an undeclared one."""

    completed: ClassVar[type[events.ItemEvent]]
    calling: ClassVar[type[events.ItemEvent] | None] = None
    """The event that the tool runs, where the API has one."""
    failed: ClassVar[type[events.ItemEvent] | None] = None
    """The event that the call has failed, where the API has one."""

    def __init__(
        self, response_id: str, index: int, tool: Hosted, approved: str | None = None, *, declared: bool = True
    ) -> None:
        """`approved` is the id of the request for approval that it was, if it was one."""
        super().__init__(response_id, index)
        self.tool = tool
        self._approved = approved
        self._declared = declared
        self._called = False

    @property
    def id(self) -> str:
        return self._id

    def call(self) -> list[Event]:
        """Note that the model's text is complete, and the tool is called; the events of that."""
        out = self._ending("completed")
        self._called = True
        return out if self.calling is None else [*out, self.calling(self._id, self._index)]

    def end(self, outcome: Outcome) -> tuple[shapes.Item, list[Event]]:
        """The whole item, and the events that end it, once the tool has answered, failed or was stopped."""
        members = {"status": outcome.status} | self._result(outcome)
        item = msgspec.structs.replace(self._item("incomplete"), **members)
        last = {"completed": self.completed, "failed": self.failed}.get(outcome.status)
        told = [] if last is None else [last(self._id, self._index)]
        return item, [*told, events.OutputItemDone(self._index, item)]

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        """The members of the item that an outcome gives."""
        return outcome.shown

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        if self._called:
            return []
        out = super()._ending(status)
        if self.failed is not None and self._fails(status):
            out.append(self.failed(self._id, self._index))
        return out

    def _fails(self, status: shapes.ItemStatus) -> bool:
        """Whether it has failed, as nobody runs the tool."""
        return status == "completed" and not self._declared


class ServerCallEmitter(HostedCallEmitter):
    """A call of a tool of an MCP server, or of any other tool that the caller never declared."""

    kind = "mcp_call"
    in_progress = events.McpCallInProgress
    completed = events.McpCallCompleted
    failed = events.McpCallFailed
    delta = events.McpCallArgumentsDelta
    done = events.McpCallArgumentsDone

    def _item(self, status: shapes.ItemStatus) -> shapes.McpCall:
        fails, tool = self._fails(status), self.tool
        call = shapes.McpCall(self._id, tool.server, tool.tool, self._said, "failed" if fails else status)
        call.error = dict(_UNKNOWN_TOOL) if fails else None
        call.approval_request_id = self._approved
        return call

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        return {"output": outcome.output, "error": outcome.error}


class PythonCallEmitter(HostedCallEmitter):
    """Code that runs in a container. It is written as it is, not as JSON."""

    kind = "code_interpreter_call"
    in_progress = events.CodeInterpreterCallInProgress
    completed = events.CodeInterpreterCallCompleted
    calling = events.CodeInterpreterCallInterpreting
    delta = events.CodeInterpreterCallCodeDelta
    done = events.CodeInterpreterCallCodeDone

    def _item(self, status: shapes.ItemStatus) -> shapes.CodeInterpreterCall:
        return shapes.CodeInterpreterCall(
            self._id, self._said, "failed" if self._fails(status) else status, self.tool.server
        )


class BrowserCallEmitter(HostedCallEmitter):
    """A call of one of the browser's tools; its action is shown at the end."""

    kind = "web_search_call"
    in_progress = events.WebSearchCallInProgress
    completed = events.WebSearchCallCompleted
    calling = events.WebSearchCallSearching

    def _item(self, status: shapes.ItemStatus) -> shapes.WebSearchCall:
        action = UNSET if status == "in_progress" else action_of(self.tool.tool, self._said)
        return shapes.WebSearchCall(self._id, "failed" if self._fails(status) else status, action)


class FileSearchCallEmitter(HostedCallEmitter):
    """A search of files; its queries are shown at the end."""

    kind = f"{FILE_SEARCH}_call"
    in_progress = events.FileSearchCallInProgress
    completed = events.FileSearchCallCompleted
    calling = events.FileSearchCallSearching

    def _item(self, status: shapes.ItemStatus) -> shapes.FileSearchCall:
        return shapes.FileSearchCall(self._id, [] if status == "in_progress" else queries_of(self._said), status)


HOSTED: Mapping[HostedKind, type[HostedCallEmitter]] = {
    "mcp": ServerCallEmitter,
    "python": PythonCallEmitter,
    "browser": BrowserCallEmitter,
    "file_search": FileSearchCallEmitter,
}
"""The emitter of a call, by the kind of its tool."""


def undeclared_call(response_id: str, index: int, name: str) -> HostedCallEmitter:
    """The emitter of a call of an undeclared tool; a model may have glued a content type to the name of one that it was
    trained with.
    """
    bare = name.removesuffix("json").removesuffix(CODE_TYPE)
    namespace, _, tool = (bare if bare in _BUILTIN else name).partition(".")
    if namespace == "python":
        hosted = Hosted("", "", kind="python")
    elif namespace == "browser":
        hosted = Hosted("", tool, kind="browser")
    else:
        hosted = Hosted(*_server_and_tool(name))
    return HOSTED[hosted.kind](response_id, index, hosted, declared=False)


def _server_and_tool(name: str) -> tuple[str, str]:
    """The server's label and the tool's name in a recipient: `mcp.docs.search` and `docs.search` are the same.

    A name without a dot is both. The namespace of functions, even repeated, is a server as any other.
    """
    functions = re.match(rf"(?:{FUNCTIONS}\.)+", name)
    if functions:
        return FUNCTIONS, name[functions.end() :] or FUNCTIONS
    label, _, tool = name.removeprefix(_PREFIX).partition(".")
    return label or tool or name, tool or label or name


def action_of(tool: str, arguments: str) -> dict[str, Any]:
    """The action that a call of the browser's `tool` asked for.

    The model names pages by links' numbers (`id`) on pages by their numbers (`cursor`); nobody knows their addresses,
    so those numbers stand for them. Arguments that can't be read are a search for them as they are.
    """
    try:
        given: dict[str, Any] = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"type": "search", "query": arguments}
    page = ",".join([f"{key}:{given[key]}" for key in ("cursor", "id") if isinstance(given.get(key), int)])
    if tool == "open":
        named = given.get("id")
        return {"type": "open_page", "url": named if isinstance(named, str) and named else page}
    if tool == "find":
        pattern = given.get("pattern")
        return {"type": "find_in_page", "url": page, "pattern": pattern if isinstance(pattern, str) else ""}
    query = given.get("query")
    return {"type": "search", "query": query if isinstance(query, str) else arguments}


class ApprovalRequestEmitter(Emitter):
    """A call that somebody has to approve. It is shown once its arguments are complete."""

    kind = "mcp_approval_request"
    late = True

    def __init__(self, response_id: str, index: int, tool: Hosted, channel: str | None) -> None:
        super().__init__(response_id, index)
        self._tool = tool
        self._channel = channel

    @property
    def request(self) -> ApprovalRequest:
        """The request for approval, once its arguments are complete."""
        tool = self._tool
        return ApprovalRequest(self._id, tool.server, tool.tool, self._said, self._channel, tool.at)

    def _item(self, status: shapes.ItemStatus) -> shapes.McpApprovalRequest:
        return shapes.McpApprovalRequest(self._id, self._tool.server, self._tool.tool, self._said)


def listing_events(response_id: str, index: int, listed: ServerTools) -> tuple[shapes.Item, list[Event]]:
    """The item of a server's list of tools at `index` of the output, and its events."""
    id = ids.output_item_id(response_id, "mcp_list_tools", index)
    item = shapes.McpListTools(id, listed.server, _TOOLS.decode(listed.tools))
    return item, [
        events.OutputItemAdded(index, shapes.McpListTools(id, listed.server, [])),
        events.McpListToolsInProgress(id, index),
        events.McpListToolsCompleted(id, index),
        events.OutputItemDone(index, item),
    ]
