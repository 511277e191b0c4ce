"""Segments to items: one emitter for each kind of output item, which knows its events and their order.

An emitter is opened with a header, given text as it comes, and closed with a status. It yields events without
sequence numbers; the machine stamps them. The grammar of each kind is the table in docs/events.md. Two identities
hold for every item: the deltas joined are the done text, and the done item is what the response's output holds.
"""

import re
from collections.abc import Set
from typing import Protocol

from service.protocol import events, ids
from service.protocol.events import Event
from service.protocol.header import CHANNELS, Header
from service.protocol.input_items import CALL_NAME
from service.protocol.response import (
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    OutputText,
    Phase,
    Reasoning,
    ReasoningText,
)


class Emitter(Protocol):
    """One open output item."""

    def open(self) -> list[Event]:
        """The events that begin the item."""
        ...

    def text(self, delta: str) -> Event:
        """The event for some more text."""
        ...

    def so_far(self) -> Item:
        """The item with the text that it has by now."""
        ...

    def close(self, status: ItemStatus) -> tuple[Item, list[Event]]:
        """The whole item, and the events that end it."""
        ...


class MessageEmitter:
    """A message with one text part: a preamble or an answer."""

    kind = "message"

    def __init__(self, response_id: str, index: int, phase: Phase) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._phase: Phase = phase
        self._text: list[str] = []

    def open(self) -> list[Event]:
        """The item without content, then its empty part."""
        item = Message(id=self._id, status="in_progress", phase=self._phase, content=[])
        part = OutputText(text="")
        return [
            events.OutputItemAdded(output_index=self._index, item=item),
            events.ContentPartAdded(item_id=self._id, output_index=self._index, content_index=0, part=part),
        ]

    def text(self, delta: str) -> Event:
        """A text delta."""
        self._text.append(delta)
        return events.OutputTextDelta(item_id=self._id, output_index=self._index, content_index=0, delta=delta)

    def _item(self, status: ItemStatus) -> Message:
        part = OutputText(text="".join(self._text))
        return Message(id=self._id, status=status, phase=self._phase, content=[part])

    def so_far(self) -> Item:
        """The message in progress."""
        return self._item("in_progress")

    def close(self, status: ItemStatus) -> tuple[Item, list[Event]]:
        """The text, the part and the item are done."""
        item = self._item(status)
        (part,) = item.content
        text = part.text
        return item, [
            events.OutputTextDone(item_id=self._id, output_index=self._index, content_index=0, text=text),
            events.ContentPartDone(item_id=self._id, output_index=self._index, content_index=0, part=part),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


class ReasoningEmitter:
    """Raw reasoning with one part."""

    kind = "reasoning"

    def __init__(self, response_id: str, index: int) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._text: list[str] = []

    def open(self) -> list[Event]:
        """The item without content, then its empty part."""
        item = Reasoning(id=self._id, status="in_progress", content=[])
        part = ReasoningText(text="")
        return [
            events.OutputItemAdded(output_index=self._index, item=item),
            events.ContentPartAdded(item_id=self._id, output_index=self._index, content_index=0, part=part),
        ]

    def text(self, delta: str) -> Event:
        """A reasoning delta."""
        self._text.append(delta)
        return events.ReasoningTextDelta(item_id=self._id, output_index=self._index, content_index=0, delta=delta)

    def _item(self, status: ItemStatus) -> Reasoning:
        return Reasoning(id=self._id, status=status, content=[ReasoningText(text="".join(self._text))])

    def so_far(self) -> Item:
        """The reasoning in progress."""
        return self._item("in_progress")

    def close(self, status: ItemStatus) -> tuple[Item, list[Event]]:
        """The text, the part and the item are done."""
        item = self._item(status)
        (part,) = item.content
        text = part.text
        return item, [
            events.ReasoningTextDone(item_id=self._id, output_index=self._index, content_index=0, text=text),
            events.ContentPartDone(item_id=self._id, output_index=self._index, content_index=0, part=part),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


class FunctionCallEmitter:
    """A call of a function that the caller runs; the arguments go through as sampled."""

    kind = "function_call"

    def __init__(self, response_id: str, index: int, name: str) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self.name = name
        self._arguments: list[str] = []
        self.call_id = ids.call_id(response_id, index)

    def _item(self, arguments: str, status: ItemStatus) -> FunctionCall:
        return FunctionCall(id=self._id, call_id=self.call_id, name=self.name, arguments=arguments, status=status)

    def open(self) -> list[Event]:
        """The call without arguments."""
        return [events.OutputItemAdded(output_index=self._index, item=self._item("", "in_progress"))]

    def text(self, delta: str) -> Event:
        """An arguments delta."""
        self._arguments.append(delta)
        return events.FunctionCallArgumentsDelta(item_id=self._id, output_index=self._index, delta=delta)

    def so_far(self) -> Item:
        """The call in progress."""
        return self._item("".join(self._arguments), "in_progress")

    def close(self, status: ItemStatus) -> tuple[Item, list[Event]]:
        """The arguments and the item are done."""
        arguments = "".join(self._arguments)
        item = self._item(arguments, status)
        return item, [
            events.FunctionCallArgumentsDone(
                item_id=self._id, output_index=self._index, name=self.name, arguments=arguments
            ),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


def emitter_for(header: Header, response_id: str, index: int, functions: Set[str]) -> Emitter:
    """The kind of item that a message with this header becomes.

    A recipient decides before the channel does, because models call functions on any channel. Without one, analysis
    is reasoning, final and no channel an answer; commentary and channels that don't exist are preambles, so that
    what was said to the user stays visible, unless the channel is the name of a declared function. A recipient that
    is no function is shown as a preamble too.
    """
    misplaced = header.channel if header.channel not in CHANNELS else None
    name = function_name(header.recipient or misplaced, functions)
    if name is not None:
        return FunctionCallEmitter(response_id, index, name)
    if header.channel == "analysis" and header.recipient is None:
        return ReasoningEmitter(response_id, index)
    answers = header.recipient is None and header.channel in (None, "final")
    return MessageEmitter(response_id, index, "final_answer" if answers else "commentary")


def function_name(recipient: str | None, functions: Set[str]) -> str | None:
    """The function that a recipient means, or None.

    Seen in the wild: the namespace missing or doubled, and a glued content type (`get_weatherjson`). A bare name counts
    only if it is declared; with the namespace it is a call even of a function that nobody declared, if it can be one.
    """
    if recipient is None:
        return None
    name = re.sub(r"^(?:functions\.)+", "", recipient)
    if name not in functions and name.endswith("json") and name[:-4] in functions:
        name = name[:-4]
    if name in functions or (name != recipient and CALL_NAME.fullmatch(name)):
        return name
    return None
