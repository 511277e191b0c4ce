"""The base of all emitters of output items: an emitter knows the events of one kind, and their order.

An emitter is opened, given text as it comes, and closed with a status. It yields events without sequence numbers; the
machine stamps them. The grammar of each kind is the table in docs/events.md. Two identities hold for every item: the
deltas joined are the done text, and the done item is what the response's output holds.
Messages and reasoning are in text.py, calls of the caller's tools in calls.py, and all other calls in hosted.py;
emitters.py says which one an item gets.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from service.api import events, ids
from service.api.events import Event
from service.api.response import Item, ItemStatus, Logprob
from store.turn import StoredMessage

Seal = Callable[[str, bytes], str]
"""Seals a payload of a kind (sealed.py) to the tenant whose response it is."""

OfText = Callable[[str, int, str], Event]
"""Makes an event of an item's id and index, and some text."""


class Emitter(ABC):
    """One open output item, at `index` of the output, with the text that it was given by now."""

    kind: ClassVar[str]
    in_progress: ClassVar[type[events.ItemEvent] | None] = None
    """The event that follows when the item was added, if one does."""
    delta: ClassVar[OfText | None] = None
    """The event for some more text; None where the API has none for it."""

    def __init__(self, response_id: str, index: int) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._pieces: list[str] = []

    @property
    def _said(self) -> str:
        return "".join(self._pieces)

    def open(self) -> list[Event]:
        """The events that begin the item."""
        added: list[Event] = [events.OutputItemAdded(self._index, self._item("in_progress"))]
        return added if self.in_progress is None else [*added, self.in_progress(self._id, self._index)]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """The events for some more text; `logprobs` are those of the tokens that it came from."""
        self._pieces.append(delta)
        make = type(self).delta
        return [] if make is None else [make(self._id, self._index, delta)]

    def so_far(self) -> Item | None:
        """The item with the text that its events gave by now: what they fold to. None where none has begun it."""
        return self._item("in_progress")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The whole item, and the events that end it. `sampled` is the message as later prompts will have it."""
        item = self._item(status)
        return item, [*self._ending(status), events.OutputItemDone(self._index, item)]

    @abstractmethod
    def _item(self, status: ItemStatus) -> Item:
        """The item with all of its text, in this status."""

    def _ending(self, status: ItemStatus) -> list[Event]:
        """The events that end the item's text."""
        return []
