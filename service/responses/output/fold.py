"""Events to a Response, and back: a caller that doesn't stream gets the fold of the events that a streaming one sees.

Folding the first n events of a stream gives the response as it stood then, so a log cut short by a crash folds too,
and so does one whose beginning was folded before, anywhere, and written down since (`Fold.resume`).
The terminal event's response is authoritative, and equals the fold up to it; tests hold us to that.

`unfold` gives events for a response whose own are no longer kept: those of its items, with each text as one delta.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast, get_args

import msgspec

from service.api import events
from service.api import response as shapes
from service.api.events import Event
from service.api.response import Item, Response
from service.api.tools.client import FORMS
from service.responses.output.calls import CustomToolCallEmitter, FunctionCallEmitter, command_events
from service.responses.output.emitter import Emitter
from service.responses.output.endings import terminal
from service.responses.output.hosted import HOSTED, HostedCallEmitter

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
    shapes.FunctionCall: "arguments",
    shapes.McpCall: "arguments",
    shapes.CustomToolCall: "input",
    shapes.CodeInterpreterCall: "code",
}
"""The member with an item's text, where it has no parts."""


def _parts(item: shapes.Message | shapes.Reasoning) -> str:
    """The member with the part that is open: a reasoning shown as a summary has no raw one yet."""
    return "content" if isinstance(item, shapes.Message) or item.content else "summary"


def _open_text(item: Item) -> str:
    """The text of an item in progress so far; empty where its part has not been added yet."""
    if (member := _MEMBERS.get(type(item))) and getattr(item, "status", "") == "in_progress":
        return getattr(item, member)
    if isinstance(item, shapes.Message | shapes.Reasoning) and item.status == "in_progress":
        return "".join(part.text for part in getattr(item, _parts(item)))
    return ""


def _with_text(item: Item, text: str) -> Item:
    """The item with its open text; an item that is done has no open deltas and stays as it is."""
    if text and (member := _MEMBERS.get(type(item))):
        return msgspec.structs.replace(item, **{member: text})
    if text and isinstance(item, shapes.Message | shapes.Reasoning):
        (part,) = getattr(item, parts := _parts(item))
        return msgspec.structs.replace(item, **{parts: [msgspec.structs.replace(part, text=text)]})
    return item


LOGPROBS_A_STEP = 256
"""How many log probabilities are read at once: with twenty alternatives each, some 2 ms."""

_BLANK: dict[type, dict[str, Any]] = {
    shapes.Message: {"content": []},
    shapes.Reasoning: {"content": [], "summary": [], "encrypted_content": msgspec.UNSET},
    **{kind: {member: ""} for kind, member in _MEMBERS.items()},
    shapes.McpCall: {"arguments": "", "output": None, "error": None},
    shapes.CodeInterpreterCall: {"code": "", "outputs": None},
    shapes.WebSearchCall: {"action": msgspec.UNSET},
    shapes.FileSearchCall: {"queries": [], "results": None},
    shapes.ToolSearchCall: {"arguments": FORMS["tool_search"].empty},
    shapes.ShellCall: {"action": FORMS["shell"].empty},
    shapes.LocalShellCall: {"action": FORMS["local_shell"].empty},
    shapes.ApplyPatchCall: {},
    shapes.McpApprovalRequest: {},
    shapes.McpListTools: {"tools": []},
    shapes.Compaction: {"encrypted_content": ""},
}
"""The members in which an item is another one when it begins, beside its status."""

_EMITTERS: dict[type, type[Emitter]] = {
    shapes.FunctionCall: FunctionCallEmitter,
    shapes.CustomToolCall: CustomToolCallEmitter,
    shapes.McpCall: HOSTED["mcp"],
    shapes.CodeInterpreterCall: HOSTED["python"],
    shapes.WebSearchCall: HOSTED["browser"],
    shapes.FileSearchCall: HOSTED["file_search"],
}
"""The emitters of calls, which know the events of each kind."""

_LOGPROB = msgspec.json.Decoder(events.StreamedLogprob)
_encode = msgspec.json.Encoder().encode


def unfold(response: Response, after: int) -> Iterator[list[Event]]:
    """The substitutes of the events behind number `after` of a response that has ended, where these are no longer kept:
    its last events, and before them all others for a follower that has none. They come one by one, and as no event at
    all between pieces of work.
    """
    number = after + 1
    for batch in _all_of(response) if after < 0 else [terminal(response)]:
        for event in batch:
            event.sequence_number = number
            number += 1
        yield batch


def _all_of(response: Response) -> Iterator[list[Event]]:
    base = msgspec.structs.replace(
        response,
        status=shapes.ResponseStatus.IN_PROGRESS,
        output=[],
        usage=None,
        error=None,
        incomplete_details=None,
        completed_at=None,
        output_messages=msgspec.UNSET,
        durability=msgspec.UNSET,
        harmonium=msgspec.UNSET,
    )
    yield [events.ResponseCreated(response=base), events.ResponseInProgress(response=base)]
    for index, item in enumerate(response.output):
        blank = _BLANK[type(item)] | ({"status": "in_progress"} if hasattr(item, "status") else {})
        yield [events.OutputItemAdded(index, msgspec.structs.replace(item, **blank))]
        for batch in _inside(item, index):
            yield from ([event] for event in batch)
            yield []
        yield [events.OutputItemDone(index, item)]
    yield terminal(response)


def _inside(item: Item, index: int) -> Iterator[list[Event]]:
    """The events of an item between its first and its last one."""
    if isinstance(item, shapes.Message):
        for part in item.content:
            yield from _message(item.id, index, part)
    elif isinstance(item, shapes.Reasoning):
        yield _reasoning(item, index)
    elif isinstance(item, shapes.ShellCall):
        for event in command_events(item.id, index, item.action["commands"]):
            yield [event]
    elif isinstance(item, shapes.McpListTools):
        yield [events.McpListToolsInProgress(item.id, index), events.McpListToolsCompleted(item.id, index)]
    elif type(item) in _EMITTERS:
        yield _call(item, index)


def _message(id: str, index: int, part: shapes.OutputText) -> Iterator[list[Event]]:
    yield [events.ContentPartAdded(id, index, 0, shapes.OutputText(text=""))]
    logprobs: list[events.StreamedLogprob] = []
    for start in range(0, len(part.logprobs), LOGPROBS_A_STEP):
        logprobs += [_LOGPROB.decode(raw) for raw in part.logprobs[start : start + LOGPROBS_A_STEP]]
        yield []
    if part.text:
        yield [events.OutputTextDelta(id, index, 0, part.text, tuple(logprobs))]
    yield [
        events.OutputTextAnnotationAdded(id, index, 0, number, annotation)
        for number, annotation in enumerate(part.annotations)
    ]
    without_bytes: list[msgspec.Raw] = []
    for start in range(0, len(logprobs), LOGPROBS_A_STEP):
        without_bytes += [msgspec.Raw(_encode(each)) for each in logprobs[start : start + LOGPROBS_A_STEP]]
        yield []
    done = events.OutputTextDone(id, index, 0, part.text, tuple(without_bytes))
    yield [done, events.ContentPartDone(id, index, 0, part)]


def _reasoning(item: shapes.Reasoning, index: int) -> list[Event]:
    out: list[Event] = []
    for number, part in enumerate(item.summary):
        out.append(events.SummaryPartAdded(item.id, index, number, shapes.SummaryText("")))
        out += [events.SummaryTextDelta(item.id, index, number, part.text)] if part.text else ()
        out.append(events.SummaryTextDone(item.id, index, number, part.text))
        out.append(events.SummaryPartDone(item.id, index, number, part))
    for number, raw in enumerate(item.content):
        delta = "" if item.summary else raw.text  # clients join the deltas of both
        out.append(events.ContentPartAdded(item.id, index, number, shapes.ReasoningText("")))
        out += [events.ReasoningTextDelta(item.id, index, number, delta)] if raw.text else ()
        out.append(events.ReasoningTextDone(item.id, index, number, raw.text))
        out.append(events.ContentPartDone(item.id, index, number, raw))
    return out


def _call(item: Item, index: int) -> list[Event]:
    """The events inside a call. Only of one that is complete are those there that say that it is carried out: of others
    nobody knows how far they came.
    """
    id, emitter = item.id, _EMITTERS[type(item)]
    said: str = getattr(item, _MEMBERS[type(item)]) if type(item) in _MEMBERS else ""
    out: list[Event] = [] if emitter.in_progress is None else [emitter.in_progress(id, index)]
    if said and emitter.delta is not None:
        out.append(emitter.delta(id, index, said))
    if isinstance(item, shapes.FunctionCall):
        out.append(events.FunctionCallArgumentsDone(id, index, item.name, said))
    elif emitter.done is not None:
        out.append(emitter.done(id, index, said))
    if issubclass(emitter, HostedCallEmitter):
        last = {"failed": (emitter.failed,), "completed": (emitter.calling, emitter.completed)}
        out += [make(id, index) for make in last.get(getattr(item, "status", ""), ()) if make is not None]
    return out
