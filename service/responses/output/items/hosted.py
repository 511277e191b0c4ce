"""Calls of tools that the service runs, as items, and the lists of tools that it read for a response.

A call's arguments stream as they are sampled. Then the tool runs, and the item ends with what became of it: no other
item waits for anything but the model.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from service.api import events, ids
from service.api.events import Event
from service.api.response import Item, ItemStatus, Logprob, McpCall, McpListTools
from service.api.tools.callee import Hosted
from service.api.tools.outcome import Outcome
from service.responses.output.items.emitter import Emitter
from service.responses.rules import Listed

_TOOLS = msgspec.json.Decoder(list[dict[str, Any]])


class HostedCallEmitter(Emitter):
    """A call of a tool of an MCP server."""

    kind = "mcp_call"

    def __init__(self, response_id: str, index: int, tool: Hosted) -> None:
        super().__init__(response_id, index)
        self.tool = tool
        self._called = False

    @property
    def id(self) -> str:
        """The id of its item."""
        return self._id

    def open(self) -> list[Event]:
        """The call without its arguments, and that it is in progress."""
        return [*super().open(), events.McpCallInProgress(self._id, self._index)]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._pieces.append(delta)
        return [events.McpCallArgumentsDelta(self._id, self._index, delta)]

    def call(self) -> list[Event]:
        """The arguments are complete: the tool is called."""
        self._called = True
        return [events.McpCallArgumentsDone(self._id, self._index, self._said)]

    def end(self, outcome: Outcome) -> tuple[Item, list[Event]]:
        """The whole item, and the events that end it, once the tool has answered, failed or was stopped."""
        item = msgspec.structs.replace(
            self._item("in_progress"), status=outcome.status, output=outcome.output, error=outcome.error
        )
        out: list[Event] = []
        if outcome.status == "completed":
            out.append(events.McpCallCompleted(self._id, self._index))
        elif outcome.status == "failed":
            out.append(events.McpCallFailed(self._id, self._index))
        return item, [*out, events.OutputItemDone(self._index, item)]

    def _item(self, status: ItemStatus) -> McpCall:
        return McpCall(self._id, self.tool.server, self.tool.tool, self._said, status)

    def _ending(self, status: ItemStatus) -> list[Event]:
        return [] if self._called else self.call()


def listing_events(response_id: str, index: int, listed: Listed) -> tuple[Item, list[Event]]:
    """The item of a server's list of tools at `index` of the output, and its events."""
    id = ids.output_item_id(response_id, "mcp_list_tools", index)
    item = McpListTools(id, listed.server, _TOOLS.decode(listed.tools))
    return item, [
        events.OutputItemAdded(index, McpListTools(id, listed.server, [])),
        events.McpListToolsInProgress(id, index),
        events.McpListToolsCompleted(id, index),
        events.OutputItemDone(index, item),
    ]
