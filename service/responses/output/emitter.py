"""Emitters of output items: an emitter knows the events of one kind, and their order.

An emitter is opened, given text as it comes, and closed with a status. It yields events without sequence numbers; the
machine stamps them. The grammar of each kind is the table in docs/events.md. Two identities hold for every item: the
deltas joined are the done text, and the done item is what the response's output holds.
Here are the base of all, and the emitters of the model's text: messages, reasoning, and the compaction that a summary
becomes. Nearly all events of a stream are made by `text` of the first two: it is the hot path. Calls of the caller's
tools are in calls.py, and all other calls in hosted.py.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from service.api import events, ids
from service.api import response as shapes
from service.api.citing import Cited, Citing
from service.api.events import Event
from service.responses.output import sealed
from service.responses.output.logprobs import without_bytes
from store.turn import Messages, StoredMessage

Seal = Callable[[str, bytes], str]
"""Seals a payload of a kind (sealed.py) to the tenant whose response it is."""

OfText = Callable[[str, int, str], Event]
"""Makes an event of an item's id and index, and some text."""

MAX_LOGPROB_BYTES = 4 << 20
"""About how much JSON of log probabilities an item shows: 3,400 tokens with twenty alternatives each, or 50,000 with
none. The tokens behind have none: four events have them all, and each of those is written in one go."""

_encode = msgspec.json.Encoder().encode


class Emitter:
    """One open output item, at `index` of the output, with the text that it was given by now.

    It has no abstract base class: that would make each look at its kind a call into Python.
    """

    kind: ClassVar[str]
    in_progress: ClassVar[type[events.ItemEvent] | None] = None
    """The event that follows when the item was added, if one does."""
    delta: ClassVar[OfText | None] = None
    """The event for some more text; None where the API has none for it."""
    done: ClassVar[OfText | None] = None
    """The event that the text is whole, where the API shows that text by itself."""
    late: ClassVar[bool] = False
    """Whether it is shown once it is whole, and else never."""

    def __init__(self, response_id: str, index: int) -> None:
        self._id = ids.output_item_id(response_id, self.kind, index)
        self._index = index
        self._pieces: list[str] = []

    @property
    def _said(self) -> str:
        return "".join(self._pieces)

    def open(self) -> list[Event]:
        """The events that begin the item."""
        return [] if self.late else self._begin()

    def _begin(self) -> list[Event]:
        added: list[Event] = [events.OutputItemAdded(self._index, self._item("in_progress"))]
        return added if self.in_progress is None else [*added, self.in_progress(self._id, self._index)]

    def text(self, delta: str, logprobs: Sequence[shapes.Logprob] = ()) -> list[Event]:
        """The events for some more text; `logprobs` are those of the tokens that it came from."""
        self._pieces.append(delta)
        make = type(self).delta
        return [] if make is None else [make(self._id, self._index, delta)]

    def so_far(self) -> shapes.Item | None:
        """The item with the text that its events gave by now: what they fold to. None where none has begun it."""
        return None if self.late else self._item("in_progress")

    def close(self, status: shapes.ItemStatus, sampled: StoredMessage | None = None) -> tuple[shapes.Item, list[Event]]:
        """The whole item, and the events that end it. `sampled` is the message as later prompts will have it."""
        rest = self._rest()
        item = self._item(status)
        return item, [
            *rest,
            *(self._begin() if self.late else ()),
            *self._ending(status),
            events.OutputItemDone(self._index, item),
        ]

    def _rest(self) -> list[Event]:
        """The events for text that was held back until now."""
        return []

    def _item(self, status: shapes.ItemStatus) -> shapes.Item:
        """The item with all of its text, in this status."""
        raise NotImplementedError

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        """The events that end the item's text."""
        done = type(self).done
        return [] if done is None else [done(self._id, self._index, self._said)]


class MessageEmitter(Emitter):
    """A message with one text part: a preamble or an answer. Its log probabilities are shown whole once it is done."""

    kind = "message"

    def __init__(self, response_id: str, index: int, phase: shapes.Phase, citing: Citing | None = None) -> None:
        """`citing` finds its citations, where there can be any."""
        super().__init__(response_id, index)
        self._phase: shapes.Phase = phase
        self._citing = citing
        self._annotations: list[dict[str, Any]] = []
        self._logprobs: list[msgspec.Raw] = []
        self._without_bytes: list[msgspec.Raw] = []
        self._logprob_bytes = 0

    def open(self) -> list[Event]:
        item = shapes.Message(self._id, "in_progress", self._phase, content=[])
        part = shapes.OutputText(text="")
        return [events.OutputItemAdded(self._index, item), events.ContentPartAdded(self._id, self._index, 0, part)]

    def text(self, delta: str, logprobs: Sequence[shapes.Logprob] = ()) -> list[Event]:
        if self._citing is None:
            return self._show(delta, logprobs)
        return self._cite(self._citing.take(delta, logprobs))

    def _rest(self) -> list[Event]:
        return [] if self._citing is None else self._cite(self._citing.rest())

    def _cite(self, pieces: Iterable[Cited]) -> list[Event]:
        out: list[Event] = []
        for text, beside, annotation in pieces:
            if text:
                out += self._show(text, beside)
            if annotation is not None:
                number = len(self._annotations)
                self._annotations.append(annotation)
                out.append(events.OutputTextAnnotationAdded(self._id, self._index, 0, number, annotation))
        return out

    def _show(self, delta: str, logprobs: Sequence[shapes.Logprob]) -> list[Event]:
        self._pieces.append(delta)
        if not logprobs or self._logprob_bytes > MAX_LOGPROB_BYTES:
            return [events.OutputTextDelta(self._id, self._index, 0, delta)]
        shown = without_bytes(logprobs)
        self._logprobs += [msgspec.Raw(_encode(each)) for each in logprobs]
        self._without_bytes += [msgspec.Raw(_encode(each)) for each in shown]
        self._logprob_bytes += sum(len(memoryview(raw)) for raw in self._logprobs[-len(logprobs) :])
        return [events.OutputTextDelta(self._id, self._index, 0, delta, shown)]

    def _part(self, status: shapes.ItemStatus) -> shapes.OutputText:
        text = "".join(self._pieces)
        return (
            shapes.OutputText(text)
            if status == "in_progress"
            else shapes.OutputText(text, self._annotations, self._logprobs)
        )

    def _item(self, status: shapes.ItemStatus) -> shapes.Message:
        return shapes.Message(self._id, status, self._phase, [self._part(status)])

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        part = self._part(status)
        done = events.OutputTextDone(self._id, self._index, 0, part.text, tuple(self._without_bytes))
        return [done, events.ContentPartDone(self._id, self._index, 0, part)]


class ReasoningEmitter(Emitter):
    """Raw reasoning with one part.

    A caller that asked for a summary sees the reasoning as one while it is made. Once it is done, the item has it raw,
    without deltas: clients join the deltas of both to one text. With `seal` the item carries its own message, sealed.
    """

    kind = "reasoning"

    def __init__(self, response_id: str, index: int, *, summarised: bool = False, seal: Seal | None = None) -> None:
        super().__init__(response_id, index)
        self._summarised = summarised
        self._seal = seal
        self._sealed: str | msgspec.UnsetType = msgspec.UNSET

    def open(self) -> list[Event]:
        added = events.OutputItemAdded(self._index, shapes.Reasoning(self._id, "in_progress", content=[]))
        if not self._summarised:
            return [added, self._part_added()]
        return [added, events.SummaryPartAdded(self._id, self._index, 0, shapes.SummaryText(""))]

    def text(self, delta: str, logprobs: Sequence[shapes.Logprob] = ()) -> list[Event]:
        self._pieces.append(delta)
        if self._summarised:
            return [events.SummaryTextDelta(self._id, self._index, 0, delta)]
        return [events.ReasoningTextDelta(self._id, self._index, 0, delta)]

    def _item(self, status: shapes.ItemStatus) -> shapes.Reasoning:
        text = self._said
        raw = [] if self._summarised and status == "in_progress" else [shapes.ReasoningText(text)]
        return shapes.Reasoning(
            self._id, status, raw, [shapes.SummaryText(text)] if self._summarised else [], self._sealed
        )

    def close(self, status: shapes.ItemStatus, sampled: StoredMessage | None = None) -> tuple[shapes.Item, list[Event]]:
        if self._seal is not None:
            with suppress(sealed.TooLong):  # then its text alone goes on: beyond any context of today's models
                self._sealed = self._seal(sealed.REASONING, sealed.reasoning(sampled or self._said))
        return super().close(status, sampled)

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        text = self._said
        return [
            *(self._summary_done(text) if self._summarised else ()),
            events.ReasoningTextDone(self._id, self._index, 0, text),
            events.ContentPartDone(self._id, self._index, 0, shapes.ReasoningText(text)),
        ]

    def _part_added(self) -> Event:
        return events.ContentPartAdded(self._id, self._index, 0, shapes.ReasoningText(""))

    def _summary_done(self, text: str) -> list[Event]:
        """The end of the summary, and the beginning of the raw reasoning, whose delta says nothing: it is there because
        releases count events, and one goes on with what another began.
        """
        return [
            events.SummaryTextDone(self._id, self._index, 0, text),
            events.SummaryPartDone(self._id, self._index, 0, shapes.SummaryText(text)),
            self._part_added(),
            *([events.ReasoningTextDelta(self._id, self._index, 0, "")] if text else ()),
        ]


class CompactionEmitter(Emitter):
    """A compaction: nobody sees the model's summary, and it is sealed at the end."""

    kind = "compaction"

    def __init__(self, response_id: str, index: int, seal: Seal, kept: Messages, newest: Messages) -> None:
        super().__init__(response_id, index)
        self._seal = seal
        self._kept = kept
        self._newest = newest

    def _item(self, status: shapes.ItemStatus) -> shapes.Compaction:
        """The item, which has no status: without a complete summary it is empty."""
        if status != "completed":
            return shapes.Compaction(self._id, "")
        payload = sealed.compaction(self._said, self._kept, self._newest)
        return shapes.Compaction(self._id, self._seal(sealed.COMPACTION, payload))
