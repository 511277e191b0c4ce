"""Calls of the client's tools that have items of their own: a search for tools, commands for a shell, patches.

An item has the action, and not the model's text, so nothing of it is known before the call is complete. It is shown
whole or not at all: a client that carries out an action that was cut short would do harm.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from service.api import events, ids
from service.api.events import Event
from service.api.response import (
    ActionCall,
    ApplyPatchCall,
    Item,
    ItemStatus,
    LocalShellCall,
    Logprob,
    ShellCall,
    ToolSearchCall,
)
from service.api.tools.client import FORMS, ClientKind, action_of
from service.responses.output.emitter import Emitter
from store.turn import StoredMessage


class ActionEmitter(Emitter):
    """A call of a `tool`, whose item has the action."""

    tool: ClassVar[ClientKind]
    make: ClassVar[Callable[[str, str, dict[str, Any], ItemStatus], ActionCall]]
    """Makes the item of its id, the call's id, the action and the status."""

    def __init__(self, response_id: str, index: int) -> None:
        super().__init__(response_id, index)
        self._call_id = ids.call_id(response_id, index)

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: the item doesn't show the model's text."""
        self._pieces.append(delta)
        return []

    def fault_of(self, content: str) -> str | None:
        """Why its content is no call of the tool; None where it is one."""
        try:
            action_of(self.tool, content)
        except ValueError as error:
            return str(error)
        return None

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The whole item."""
        action = action_of(self.tool, self._said) if status == "completed" else FORMS[self.tool].empty
        item = self._made(status, action)
        return item, [*self._told(action), events.OutputItemDone(self._index, item)]

    def _told(self, action: dict[str, Any]) -> list[Event]:
        """The events that show the action, before the item does."""
        return []

    def _item(self, status: ItemStatus) -> ActionCall:
        return self._made(status, FORMS[self.tool].empty)

    def _made(self, status: ItemStatus, action: dict[str, Any]) -> ActionCall:
        return type(self).make(self._id, self._call_id, action, status)


class ToolSearchCallEmitter(ActionEmitter):
    """A search for tools."""

    kind, tool, make = "tool_search_call", "tool_search", ToolSearchCall


class LocalShellCallEmitter(ActionEmitter):
    """A command for the client's machine."""

    kind, tool, make = "local_shell_call", "local_shell", LocalShellCall


class ShellCallEmitter(ActionEmitter):
    """Commands for the client's shell, which are told one by one."""

    kind, tool, make = "shell_call", "shell", ShellCall

    def _told(self, action: dict[str, Any]) -> list[Event]:
        out: list[Event] = []
        for place, command in enumerate(action["commands"]):
            out.append(events.ShellCallCommandAdded(self._id, self._index, place))
            if command:
                out.append(events.ShellCallCommandDelta(self._id, self._index, place, command))
            out.append(events.ShellCallCommandDone(self._id, self._index, place, command))
        return out


class ApplyPatchCallEmitter(ActionEmitter):
    """A patch, whose item begins once it is known: OpenAI's says which file it is about from its beginning on."""

    kind, tool, make = "apply_patch_call", "apply_patch", ApplyPatchCall

    def open(self) -> list[Event]:
        """Nothing yet."""
        return []

    def so_far(self) -> None:
        """Nothing yet."""

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The whole item, from its beginning on."""
        action = action_of(self.tool, self._said) if status == "completed" else FORMS[self.tool].empty
        begun = events.OutputItemAdded(self._index, self._made("in_progress", action))
        item, ending = super().close(status, sampled)
        return item, [begun, *ending]
