"""What the model says as items: messages and reasoning, and the compaction that a summary becomes.

Nearly all events of a stream are made here: `text` of a message and of reasoning is the hot path.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from service.api import events, ids
from service.api.events import Event
from service.api.response import (
    Compaction,
    Item,
    ItemStatus,
    Logprob,
    Message,
    OutputText,
    Phase,
    Reasoning,
    ReasoningText,
    SummaryText,
)
from service.responses import sealed
from service.responses.output.logprobs import without_bytes
from store.turn import Messages, StoredMessage

Seal = Callable[[str, bytes], str]
"""Seals a payload of a kind (sealed.py) to the tenant whose response it is."""


MAX_LOGPROB_BYTES = 4 << 20
"""About how much JSON of log probabilities an item shows: 3,400 tokens with twenty alternatives each, or 50,000 with
none. The tokens behind have none: four events have them all, and each of those is written in one go."""

_encode = msgspec.json.Encoder().encode


class MessageEmitter:
    """A message with one text part: a preamble or an answer. Its log probabilities are shown whole once it is done."""

    kind = "message"

    def __init__(self, response_id: str, index: int, phase: Phase) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._phase: Phase = phase
        self._text: list[str] = []
        self._logprobs: list[msgspec.Raw] = []
        self._without_bytes: list[msgspec.Raw] = []
        self._logprob_bytes = 0

    def open(self) -> list[Event]:
        """The item without content, then its empty part."""
        item = Message(id=self._id, status="in_progress", phase=self._phase, content=[])
        part = OutputText(text="")
        return [
            events.OutputItemAdded(output_index=self._index, item=item),
            events.ContentPartAdded(item_id=self._id, output_index=self._index, content_index=0, part=part),
        ]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A text delta."""
        self._text.append(delta)
        if not logprobs or self._logprob_bytes > MAX_LOGPROB_BYTES:
            return [events.OutputTextDelta(item_id=self._id, output_index=self._index, content_index=0, delta=delta)]
        shown = without_bytes(logprobs)
        self._logprobs += [msgspec.Raw(_encode(each)) for each in logprobs]
        self._without_bytes += [msgspec.Raw(_encode(each)) for each in shown]
        self._logprob_bytes += sum(len(memoryview(raw)) for raw in self._logprobs[-len(logprobs) :])
        return [
            events.OutputTextDelta(
                item_id=self._id,
                output_index=self._index,
                content_index=0,
                delta=delta,
                logprobs=shown,
            )
        ]

    def _item(self, status: ItemStatus, part: OutputText) -> Message:
        return Message(id=self._id, status=status, phase=self._phase, content=[part])

    def so_far(self) -> Item:
        """The message in progress."""
        return self._item("in_progress", OutputText(text="".join(self._text)))

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The text, the part and the item are done."""
        text = "".join(self._text)
        part = OutputText(text=text, logprobs=self._logprobs)
        item = self._item(status, part)
        return item, [
            events.OutputTextDone(
                item_id=self._id,
                output_index=self._index,
                content_index=0,
                text=text,
                logprobs=tuple(self._without_bytes),
            ),
            events.ContentPartDone(item_id=self._id, output_index=self._index, content_index=0, part=part),
            events.OutputItemDone(output_index=self._index, item=item),
        ]


class ReasoningEmitter:
    """Raw reasoning with one part.

    Whoever asked for a summary sees the reasoning as one while it is made, and raw, in one piece, at the end. With
    `seal` the item carries its own message, sealed.
    """

    kind = "reasoning"

    def __init__(self, response_id: str, index: int, *, summarised: bool = False, seal: Seal | None = None) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._summarised = summarised
        self._seal = seal
        self._text: list[str] = []

    def open(self) -> list[Event]:
        """The item without content, then its empty part."""
        item = Reasoning(id=self._id, status="in_progress", content=[])
        added = events.OutputItemAdded(output_index=self._index, item=item)
        if not self._summarised:
            return [added, self._part_added()]
        part = SummaryText(text="")
        return [
            added,
            events.SummaryPartAdded(item_id=self._id, output_index=self._index, summary_index=0, part=part),
        ]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """A delta of the reasoning, or of its summary."""
        self._text.append(delta)
        if self._summarised:
            return [events.SummaryTextDelta(item_id=self._id, output_index=self._index, summary_index=0, delta=delta)]
        return [self._delta(delta)]

    def so_far(self) -> Item:
        """The reasoning in progress."""
        text = "".join(self._text)
        if self._summarised:
            return Reasoning(id=self._id, status="in_progress", content=[], summary=[SummaryText(text)])
        return Reasoning(id=self._id, status="in_progress", content=[ReasoningText(text)])

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The text, the part and the item are done."""
        text = "".join(self._text)
        part = ReasoningText(text)
        item = Reasoning(id=self._id, status=status, content=[part])
        if self._summarised:
            item.summary = [SummaryText(text)]
        if self._seal is not None:
            with suppress(sealed.TooLong):  # then its text alone goes on: beyond any context of today's models
                item.encrypted_content = self._seal(sealed.REASONING, sealed.reasoning(sampled or text))
        return item, [
            *(self._summary_done(text) if self._summarised else ()),
            events.ReasoningTextDone(item_id=self._id, output_index=self._index, content_index=0, text=text),
            events.ContentPartDone(item_id=self._id, output_index=self._index, content_index=0, part=part),
            events.OutputItemDone(output_index=self._index, item=item),
        ]

    def _part_added(self) -> Event:
        part = ReasoningText(text="")
        return events.ContentPartAdded(item_id=self._id, output_index=self._index, content_index=0, part=part)

    def _delta(self, delta: str) -> Event:
        return events.ReasoningTextDelta(item_id=self._id, output_index=self._index, content_index=0, delta=delta)

    def _summary_done(self, text: str) -> list[Event]:
        """The end of the summary, and the beginning of the raw reasoning."""
        part = SummaryText(text)
        return [
            events.SummaryTextDone(item_id=self._id, output_index=self._index, summary_index=0, text=text),
            events.SummaryPartDone(item_id=self._id, output_index=self._index, summary_index=0, part=part),
            self._part_added(),
            *([self._delta(text)] if text else ()),
        ]


class CompactionEmitter:
    """A conversation in short: what the model writes of it is shown to nobody, and sealed at the end."""

    kind = "compaction"

    def __init__(self, response_id: str, index: int, seal: Seal, kept: Messages, newest: Messages = ()) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._seal = seal
        self._kept = kept
        self._newest = newest
        self._text: list[str] = []

    def open(self) -> list[Event]:
        """The item without its content."""
        return [events.OutputItemAdded(output_index=self._index, item=self.so_far())]

    def text(self, delta: str, logprobs: Sequence[Logprob] = ()) -> list[Event]:
        """Nothing: a seal has no beginning."""
        self._text.append(delta)
        return []

    def so_far(self) -> Item:
        """The item as it was opened."""
        return Compaction(id=self._id, encrypted_content="")

    def close(self, status: ItemStatus, sampled: StoredMessage | None = None) -> tuple[Item, list[Event]]:
        """The item is done. It has no status: without a complete summary it is empty."""
        item = Compaction(id=self._id, encrypted_content="")
        if status == "completed":
            payload = sealed.compaction("".join(self._text), self._kept, self._newest)
            item.encrypted_content = self._seal(sealed.COMPACTION, payload)
        return item, [events.OutputItemDone(output_index=self._index, item=item)]
