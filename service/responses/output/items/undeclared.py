"""Calls of undeclared tools as items: Python, a browser, and whatever else a model may think of.

Nobody runs them, so what is complete has `failed`; one cut short is `incomplete` as any other item. gpt-oss was trained
with these tools and calls them unasked.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from service.api import events, ids
from service.api.events import Event
from service.api.response import CodeInterpreterCall, Item, ItemStatus, Logprob, McpCall, WebSearchCall
from service.api.tools.callee import FUNCTIONS
from store.turn import StoredMessage

_BUILTIN = ("python", "browser.search", "browser.open", "browser.find")
_PREFIX = "mcp."
_UNKNOWN_TOOL = {"type": "mcp_protocol_error", "code": -32601, "message": "There is no such tool."}
"""The code is JSON-RPC's "method not found", which MCP uses."""

_Ended = Literal["incomplete", "failed"]


def builtin(name: str) -> str:
    """A tool's name without the content type that a model may have glued to that of a tool it was trained with."""
    bare = name.removesuffix("json")
    return bare if bare in _BUILTIN else name


def _ended(status: ItemStatus) -> _Ended:
    return "failed" if status == "completed" else "incomplete"


class CodeInterpreterCallEmitter:
    """Code for Python, which is written as it is, not as JSON."""

    kind = "code_interpreter_call"

    def __init__(self, response_id: str, index: int) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._code: list[str] = []

    def open(self) -> list[Event]:
        """The call without code, and that it is in progress."""
        return [
            events.OutputItemAdded(output_index=self._index, item=self.so_far()),
            events.CodeInterpreterCallInProgress(item_id=self._id, output_index=self._index),
        ]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A code delta."""
        self._code.append(delta)
        return [events.CodeInterpreterCallCodeDelta(item_id=self._id, output_index=self._index, delta=delta)]

    def so_far(self) -> Item:
        """The call in progress."""
        return CodeInterpreterCall(id=self._id, code="".join(self._code), status="in_progress")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The code and the item are done."""
        code = "".join(self._code)
        item = CodeInterpreterCall(id=self._id, code=code, status=_ended(status))
        return item, [
            events.CodeInterpreterCallCodeDone(item_id=self._id, output_index=self._index, code=code),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


class WebSearchCallEmitter:
    """A call of one of the browser's tools; what it was to do is shown at the end, when its arguments are complete."""

    kind = "web_search_call"

    def __init__(self, response_id: str, index: int, tool: str) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._tool = tool
        self._arguments: list[str] = []

    def open(self) -> list[Event]:
        """The call without its action, and that it is in progress."""
        return [
            events.OutputItemAdded(output_index=self._index, item=self.so_far()),
            events.WebSearchCallInProgress(item_id=self._id, output_index=self._index),
        ]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: the API has no event for it."""
        self._arguments.append(delta)
        return []

    def so_far(self) -> Item:
        """The call in progress."""
        return WebSearchCall(id=self._id, status="in_progress", action=UNSET)

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The item is done."""
        action = action_of(self._tool, "".join(self._arguments))
        item = WebSearchCall(id=self._id, status=_ended(status), action=action)
        return item, [events.OutputItemDone(output_index=self._index, item=item)]


def action_of(tool: str, arguments: str) -> dict[str, Any]:
    """What a call of the browser's `tool` was to do.

    The model names pages by links' numbers (`id`) on pages by their numbers (`cursor`); nobody knows their addresses,
    so those numbers stand for them. Arguments that can't be read are a search for them as they are.
    """
    try:
        given: dict[str, Any] = msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {"type": "search", "query": arguments}
    if tool == "open":
        page = given.get("id")
        return {"type": "open_page", "url": page if isinstance(page, str) and page else _page(given)}
    if tool == "find":
        pattern = given.get("pattern")
        return {"type": "find_in_page", "url": _page(given), "pattern": pattern if isinstance(pattern, str) else ""}
    query = given.get("query")
    return {"type": "search", "query": query if isinstance(query, str) else arguments}


def _page(given: dict[str, Any]) -> str:
    """The page as the model names it, in an address's place."""
    numbers = [f"{key}:{given[key]}" for key in ("cursor", "id") if isinstance(given.get(key), int)]
    return ",".join(numbers)


class McpCallEmitter:
    """A call of any other tool, as of a server of tools: one of the caller's that was never declared included."""

    kind = "mcp_call"

    def __init__(self, response_id: str, index: int, name: str) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._label, self._name = server_and_tool(name)
        self._arguments: list[str] = []

    def open(self) -> list[Event]:
        """The call without arguments, and that it is in progress."""
        return [
            events.OutputItemAdded(output_index=self._index, item=self._item("in_progress")),
            events.McpCallInProgress(item_id=self._id, output_index=self._index),
        ]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._arguments.append(delta)
        return [events.McpCallArgumentsDelta(item_id=self._id, output_index=self._index, delta=delta)]

    def so_far(self) -> Item:
        """The call in progress."""
        return self._item("in_progress")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The arguments are done, the call failed unless it was cut short, and the item is done."""
        item = self._item(_ended(status))
        out: list[Event] = [
            events.McpCallArgumentsDone(item_id=self._id, output_index=self._index, arguments=item.arguments)
        ]
        if item.status == "failed":
            item.error = dict(_UNKNOWN_TOOL)
            out.append(events.McpCallFailed(item_id=self._id, output_index=self._index))
        return item, [*out, events.OutputItemDone(output_index=self._index, item=item)]

    def _item(self, status: Literal["in_progress"] | _Ended) -> McpCall:
        return McpCall(
            id=self._id,
            server_label=self._label,
            name=self._name,
            arguments="".join(self._arguments),
            status=status,
        )


def server_and_tool(name: str) -> tuple[str, str]:
    """The server's label and the tool's name in a recipient: `mcp.docs.search` and `docs.search` are the same.

    What has no dot is both. The namespace of functions, even repeated, is a server as any other.
    """
    functions = re.match(rf"(?:{FUNCTIONS}\.)+", name)
    if functions:
        return FUNCTIONS, name[functions.end() :] or FUNCTIONS
    label, _, tool = name.removeprefix(_PREFIX).partition(".")
    return label or tool or name, tool or label or name
