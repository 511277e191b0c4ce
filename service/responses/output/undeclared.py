"""Calls of undeclared tools as items: Python, a browser, and whatever else a model may think of.

Nobody runs them, so a complete one has `failed`; one cut short is `incomplete` as any other item. gpt-oss was trained
with these tools and calls them unasked.
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET

from service.api import events
from service.api.events import Event
from service.api.response import CodeInterpreterCall, ItemStatus, Logprob, McpCall, WebSearchCall
from service.api.tools.builtin import CODE_TYPE
from service.api.tools.callee import FUNCTIONS
from service.responses.output.emitter import Emitter

_BUILTIN = ("python", "browser.search", "browser.open", "browser.find")
_PREFIX = "mcp."
_UNKNOWN_TOOL = {"type": "mcp_protocol_error", "code": -32601, "message": "There is no such tool."}
"""The code is JSON-RPC's "method not found", which MCP uses."""


def builtin(name: str) -> str:
    """A tool's name without the content type that a model may have glued to that of a tool it was trained with."""
    bare = name.removesuffix("json").removesuffix(CODE_TYPE)
    return bare if bare in _BUILTIN else name


class _UndeclaredEmitter(Emitter):
    """A call that nobody runs."""

    in_progress: ClassVar[type[events.ItemEvent]]

    def open(self) -> list[Event]:
        """The call without its text, and that it is in progress."""
        return [*super().open(), self.in_progress(self._id, self._index)]


def _ended(status: ItemStatus) -> Literal["in_progress", "incomplete", "failed"]:
    return "failed" if status == "completed" else status


class CodeInterpreterCallEmitter(_UndeclaredEmitter):
    """Code for Python, which is written as it is, not as JSON."""

    kind = "code_interpreter_call"
    in_progress = events.CodeInterpreterCallInProgress

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A code delta."""
        self._pieces.append(delta)
        return [events.CodeInterpreterCallCodeDelta(self._id, self._index, delta)]

    def _item(self, status: ItemStatus) -> CodeInterpreterCall:
        return CodeInterpreterCall(self._id, self._said, _ended(status))

    def _ending(self, status: ItemStatus) -> list[Event]:
        return [events.CodeInterpreterCallCodeDone(self._id, self._index, self._said)]


class WebSearchCallEmitter(_UndeclaredEmitter):
    """A call of one of the browser's tools; its action is shown at the end, when its arguments are complete."""

    kind = "web_search_call"
    in_progress = events.WebSearchCallInProgress

    def __init__(self, response_id: str, index: int, tool: str) -> None:
        super().__init__(response_id, index)
        self._tool = tool

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: the API has no event for it."""
        self._pieces.append(delta)
        return []

    def _item(self, status: ItemStatus) -> WebSearchCall:
        action = UNSET if status == "in_progress" else action_of(self._tool, self._said)
        return WebSearchCall(self._id, _ended(status), action)


def action_of(tool: str, arguments: str) -> dict[str, Any]:
    """The action that a call of the browser's `tool` asked for.

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


class McpCallEmitter(_UndeclaredEmitter):
    """A call of any other tool, as of a server of tools: one of the caller's that was never declared included."""

    kind = "mcp_call"
    in_progress = events.McpCallInProgress

    def __init__(self, response_id: str, index: int, name: str) -> None:
        super().__init__(response_id, index)
        self._label, self._name = server_and_tool(name)

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._pieces.append(delta)
        return [events.McpCallArgumentsDelta(self._id, self._index, delta)]

    def _item(self, status: ItemStatus) -> McpCall:
        error = dict(_UNKNOWN_TOOL) if status == "completed" else None
        return McpCall(self._id, self._label, self._name, self._said, _ended(status), error=error)

    def _ending(self, status: ItemStatus) -> list[Event]:
        done = events.McpCallArgumentsDone(self._id, self._index, self._said)
        return [done, events.McpCallFailed(self._id, self._index)] if status == "completed" else [done]


def server_and_tool(name: str) -> tuple[str, str]:
    """The server's label and the tool's name in a recipient: `mcp.docs.search` and `docs.search` are the same.

    A name without a dot is both. The namespace of functions, even repeated, is a server as any other.
    """
    functions = re.match(rf"(?:{FUNCTIONS}\.)+", name)
    if functions:
        return FUNCTIONS, name[functions.end() :] or FUNCTIONS
    label, _, tool = name.removeprefix(_PREFIX).partition(".")
    return label or tool or name, tool or label or name
