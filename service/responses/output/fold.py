"""Events to a Response: a caller that doesn't stream gets the fold of the events that a streaming one sees.

Folding the first n events of a stream gives the response as it stood then, so a log cut short by a crash folds too,
and so does one whose beginning was folded before, anywhere, and written down since (`Fold.resume`).
The terminal event's response is authoritative, and equals the fold up to it; tests hold us to that.
"""

from collections.abc import Iterable
from typing import cast, get_args

import msgspec

from service.api import events
from service.api.events import Event
from service.api.response import (
    CodeInterpreterCall,
    CustomToolCall,
    FunctionCall,
    Item,
    McpCall,
    Message,
    Reasoning,
    Response,
)

_Part = events.ContentPartAdded | events.SummaryPartAdded | events.SummaryPartDone
_DELTAS: frozenset[type[Event]] = frozenset(get_args(events.Delta))


class Fold:
    """The state of a fold: `add` events in order, then read `response`."""

    def __init__(self) -> None:
        self._response: Response | None = None
        self._items: list[Item] = []
        self._deltas: list[str] = []
        """The deltas of the open item so far."""
        self.number = -1
        """The sequence number of the last event folded; -1 before the first."""

    @classmethod
    def resume(cls, response: Response, number: int) -> "Fold":
        """Go on from what another fold's `response` was after event `number`, as that one would have."""
        fold = cls()
        fold._response = response
        fold._items = list(response.output)
        fold.number = number
        if fold._items:
            fold._deltas = [_open_text(fold._items[-1])]
        return fold

    def add(self, batch: Iterable[Event]) -> None:
        """Take events in the order of their sequence numbers."""
        event = None
        for event in batch:
            if type(event) in _DELTAS:  # nearly all are, and this look-up is the quickest
                self._deltas.append(cast(events.Delta, event).delta)
            elif isinstance(event, events.Lifecycle):
                self._response = event.response
            elif isinstance(event, events.OutputItemAdded):
                self._items.append(event.item)
                self._deltas = []
            elif isinstance(event, _Part):
                self._items[-1] = _with_part(self._items[-1], event)
                self._deltas = []
            elif isinstance(event, events.OutputItemDone):
                self._items[-1] = event.item
                self._deltas = []
        if event is not None:
            self.number = event.sequence_number

    @property
    def response(self) -> Response:
        """The response after the events so far. Raises ValueError before the first one."""
        if self._response is None:
            raise ValueError("nothing folded yet: a stream begins with response.created")
        if not self._items:
            return self._response
        items = [*self._items[:-1], _with_text(self._items[-1], "".join(self._deltas))]
        return msgspec.structs.replace(self._response, output=items)


def _with_part(item: Item, event: _Part) -> Item:
    """The item with a part that begins or, of a summary, is complete."""
    if isinstance(event, events.ContentPartAdded):
        return msgspec.structs.replace(item, content=[event.part])
    return msgspec.structs.replace(item, summary=[event.part])


_MEMBERS: dict[type, str] = {
    FunctionCall: "arguments",
    McpCall: "arguments",
    CustomToolCall: "input",
    CodeInterpreterCall: "code",
}
"""The member with an item's text, where it has no parts."""


def _parts(item: Message | Reasoning) -> str:
    """The member with the part that is open: a reasoning shown as a summary has no raw one yet."""
    return "content" if isinstance(item, Message) or item.content else "summary"


def _open_text(item: Item) -> str:
    """The text of an item in progress so far; empty where its part has not been added yet."""
    if (member := _MEMBERS.get(type(item))) and getattr(item, "status", "") == "in_progress":
        return getattr(item, member)
    if isinstance(item, Message | Reasoning) and item.status == "in_progress":
        return "".join(part.text for part in getattr(item, _parts(item)))
    return ""


def _with_text(item: Item, text: str) -> Item:
    """The item with its open text; an item that is done has no open deltas and stays as it is."""
    if text and (member := _MEMBERS.get(type(item))):
        return msgspec.structs.replace(item, **{member: text})
    if text and isinstance(item, Message | Reasoning):
        (part,) = getattr(item, parts := _parts(item))
        return msgspec.structs.replace(item, **{parts: [msgspec.structs.replace(part, text=text)]})
    return item
