"""Calls of tools that the service runs, as items, and the lists of tools that it read for a response.

A call streams as it is sampled. Then the tool runs, and the item ends with the outcome: no other item waits for
anything but the model. Those of tools that the model was trained with are in emitters.py. A call that somebody has to
approve is a request for that, and no call.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from service.api import events, ids
from service.api.approval import ApprovalRequest
from service.api.events import Event
from service.api.outcome import Outcome
from service.api.response import Item, ItemStatus, Logprob, McpApprovalRequest, McpCall, McpListTools
from service.api.tools.callee import Hosted
from service.responses.output.emitter import Emitter
from service.responses.output.rules import ServerTools

_TOOLS = msgspec.json.Decoder(list[dict[str, Any]])


class HostedCallEmitter(Emitter):
    """A call of a tool that the service runs."""

    in_progress: ClassVar[type[events.ItemEvent]]
    completed: ClassVar[type[events.ItemEvent]]

    def __init__(self, response_id: str, index: int, tool: Hosted) -> None:
        super().__init__(response_id, index)
        self.tool = tool
        self._called = False

    @property
    def id(self) -> str:
        """The id of its item."""
        return self._id

    def open(self) -> list[Event]:
        """The call without its text, and that it is in progress."""
        return [*super().open(), self.in_progress(self._id, self._index)]

    def call(self) -> list[Event]:
        """Note that the model's text is complete, and the tool is called; the events of that."""
        self._called = True
        return self._written()

    def end(self, outcome: Outcome) -> tuple[Item, list[Event]]:
        """The whole item, and the events that end it, once the tool has answered, failed or was stopped."""
        item = self._ended(outcome)
        told = [self.completed(self._id, self._index)] if outcome.status == "completed" else self._unanswered(outcome)
        return item, [*told, events.OutputItemDone(self._index, item)]

    def _ending(self, status: ItemStatus) -> list[Event]:
        return [] if self._called else self._written()

    @abstractmethod
    def _written(self) -> list[Event]:
        """The events that end the model's text."""

    @abstractmethod
    def _ended(self, outcome: Outcome) -> Item:
        """The item with its outcome."""

    def _unanswered(self, outcome: Outcome) -> list[Event]:
        """The events for an outcome that is no answer."""
        return []


class ServerCallEmitter(HostedCallEmitter):
    """A call of a tool of an MCP server."""

    kind = "mcp_call"
    in_progress = events.McpCallInProgress
    completed = events.McpCallCompleted

    def __init__(self, response_id: str, index: int, tool: Hosted, approved: str | None = None) -> None:
        """`approved` is the id of the request for approval that it was, if it was one."""
        super().__init__(response_id, index, tool)
        self._approved = approved

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """An arguments delta."""
        self._pieces.append(delta)
        return [events.McpCallArgumentsDelta(self._id, self._index, delta)]

    def _item(self, status: ItemStatus) -> McpCall:
        call = McpCall(self._id, self.tool.server, self.tool.tool, self._said, status)
        call.approval_request_id = self._approved
        return call

    def _written(self) -> list[Event]:
        return [events.McpCallArgumentsDone(self._id, self._index, self._said)]

    def _ended(self, outcome: Outcome) -> McpCall:
        item = self._item("in_progress")
        return msgspec.structs.replace(item, status=outcome.status, output=outcome.output, error=outcome.error)

    def _unanswered(self, outcome: Outcome) -> list[Event]:
        return [events.McpCallFailed(self._id, self._index)] if outcome.status == "failed" else []


class ApprovalRequestEmitter(Emitter):
    """A call that somebody has to approve. It is shown once its arguments are complete, and else never."""

    kind = "mcp_approval_request"

    def __init__(self, response_id: str, index: int, tool: Hosted, channel: str | None) -> None:
        super().__init__(response_id, index)
        self._tool = tool
        self._channel = channel

    @property
    def request(self) -> ApprovalRequest:
        """The request for approval, once its arguments are complete."""
        tool = self._tool
        return ApprovalRequest(self._id, tool.server, tool.tool, self._said, self._channel, tool.at)

    def open(self) -> list[Event]:
        """Nothing yet."""
        return []

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing yet."""
        self._pieces.append(delta)
        return []

    def _item(self, status: ItemStatus) -> McpApprovalRequest:
        return McpApprovalRequest(self._id, self._tool.server, self._tool.tool, self._said)

    def _ending(self, status: ItemStatus) -> list[Event]:
        return super().open()


def listing_events(response_id: str, index: int, listed: ServerTools) -> tuple[Item, list[Event]]:
    """The item of a server's list of tools at `index` of the output, and its events."""
    id = ids.output_item_id(response_id, "mcp_list_tools", index)
    item = McpListTools(id, listed.server, _TOOLS.decode(listed.tools))
    return item, [
        events.OutputItemAdded(index, McpListTools(id, listed.server, [])),
        events.McpListToolsInProgress(id, index),
        events.McpListToolsCompleted(id, index),
        events.OutputItemDone(index, item),
    ]
