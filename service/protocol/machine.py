"""One response as a machine: sampled tokens in, events out.

The caller's duties, in order: `begin` once; `feed` each chunk of ids; `end` once, with how the generation ended; store
the turn that `result` describes; only then let the terminal event be seen. A background response has `queued` and
later `start` in place of `begin`. Sequence numbers are stamped here and nowhere else. Events depend on the tokens
alone, never on how the engine chunked them: so a machine that `replay`s the tokens of another goes on as that one
would have. No clock and no I/O: times are passed in.
"""

from collections.abc import Generator, Sequence, Set
from enum import StrEnum

import msgspec

from service.protocol import events, tokens
from service.protocol.events import Event
from service.protocol.header import Header
from service.protocol.ids import MAX_OUTPUT_ITEMS
from service.protocol.items import Emitter, emitter_for
from service.protocol.render import close_id, frame
from service.protocol.response import (
    FunctionCall,
    IncompleteDetails,
    InputTokensDetails,
    Item,
    OutputTokensDetails,
    Reasoning,
    Response,
    ResponseError,
    ResponseStatus,
    Usage,
)
from service.protocol.segments import Closed, Opened, Segment, Segmenter
from store.turn import StoredMessage

SLICE_CHARS = 32_768
"""How much of a malformed message's text is encoded at once: at most 131,072 ids; the tokenizer refuses 200,000."""

REPLAY_IDS = 2_000
"""How many ids are replayed in one step: some 2 ms."""

_OPENING = (tokens.START, tokens.ASSISTANT)


class Ending(StrEnum):
    """How a generation ended, which decides how the response ends (`STATUS`)."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    TIMEOUT = "timeout"
    ERROR = "error"


STATUS = {
    Ending.STOP: ResponseStatus.COMPLETED,  # the model ended by itself
    Ending.LENGTH: ResponseStatus.INCOMPLETE,  # a budget of tokens ended it
    Ending.ABORT: ResponseStatus.CANCELLED,  # the caller went away, or the engine was told to stop
    Ending.TIMEOUT: ResponseStatus.FAILED,  # it took longer than a request may
    Ending.ERROR: ResponseStatus.FAILED,  # the engine failed
}
_TERMINAL = {
    ResponseStatus.COMPLETED: events.ResponseCompleted,
    ResponseStatus.INCOMPLETE: events.ResponseIncomplete,
    ResponseStatus.CANCELLED: events.ResponseFailed,
    ResponseStatus.FAILED: events.ResponseFailed,
}


class Machine:
    """From `base`, the response with its configuration and nothing else, to its terminal event."""

    def __init__(self, base: Response, functions: Set[str], input_tokens: int) -> None:
        self._base = base
        self._functions = functions
        self._input_tokens = input_tokens
        self._segmenter = Segmenter()
        self._next_number = 0
        self._sampled = 0
        self._reasoning = 0
        self._emitter: Emitter | None = None
        self._header: Header | None = None
        self.output: list[Item] = []
        self.messages: list[StoredMessage] = []
        """The messages sampled, as they will stand in later prompts."""
        self.full = False
        """Whether the response may have no more items: its one function call is complete. What follows is dropped."""

    def begin(self) -> list[Event]:
        """The response is created and in progress."""
        return self._stamp(
            [events.ResponseCreated(response=self._base), events.ResponseInProgress(response=self._base)]
        )

    def queued(self) -> list[Event]:
        """The response is created and waits for a worker."""
        waiting = msgspec.structs.replace(self._base, status=ResponseStatus.QUEUED)
        return self._stamp([events.ResponseCreated(response=waiting), events.ResponseQueued(response=waiting)])

    def start(self) -> list[Event]:
        """A worker begins with what was queued. However many attempts it takes, it begins once."""
        return self._stamp([events.ResponseInProgress(response=self._base)])

    def feed(self, ids: Sequence[int]) -> list[Event]:
        """Take sampled ids; return the events that they make."""
        self._sampled += len(ids)
        return self._take(self._segmenter.feed(ids), complete=True)

    def replay(self, packed: bytes) -> Generator[None, None, None]:
        """Take ids (`tokens.pack`) whose events are known, in steps. `next_number` is then that of the next event."""
        ids = tokens.unpack(packed)
        for start in range(0, len(ids), REPLAY_IDS):
            self.feed(ids[start : start + REPLAY_IDS])
            yield

    @property
    def next_number(self) -> int:
        """The sequence number of the next event: one more than that of the last, and how many there were."""
        return self._next_number

    def go_on_at(self, number: int) -> None:
        """What the tokens so far came to elsewhere was something else, whose last event had the number before this one:
        only the end is still to be told. What is open here is closed without a word.
        """
        self.end(Ending.ERROR)
        self._next_number = number

    @property
    def sampled(self) -> int:
        """How many ids it was fed."""
        return self._sampled

    def end(self, ending: Ending) -> list[Event]:
        """The generation is over: close the open item. A stop completes it, anything else leaves it incomplete."""
        return self._take(self._segmenter.end(), complete=ending is Ending.STOP)

    def snapshot(self) -> Response:
        """The response as it stands: what its events so far come to."""
        output = self.output if self._emitter is None else [*self.output, self._emitter.so_far()]
        return msgspec.structs.replace(self._base, output=output)

    def result(
        self, ending: Ending, *, now: int, cached_tokens: int = 0, error: ResponseError | None = None
    ) -> Response:
        """The finished response. `now` is unix seconds; `error` is for endings that fail."""
        status = STATUS[ending]
        incomplete = None
        if status is ResponseStatus.COMPLETED and not self.output:
            status, incomplete = ResponseStatus.INCOMPLETE, IncompleteDetails("no_output")
        elif status is ResponseStatus.INCOMPLETE:
            incomplete = IncompleteDetails("max_output_tokens")
        return msgspec.structs.replace(
            self._base,
            status=status,
            output=self.output,
            usage=self._usage(cached_tokens),
            error=error if status is ResponseStatus.FAILED else None,
            incomplete_details=incomplete,
            completed_at=now if status is ResponseStatus.COMPLETED else None,
        )

    def terminal(self, response: Response) -> list[Event]:
        """The last events: the terminal one, and before a failure's an `error` that says why."""
        out: list[Event] = []
        if response.error is not None:
            out.append(events.Error(code=response.error.code, message=response.error.message))
        out.append(_TERMINAL[response.status](response=response))
        return self._stamp(out)

    def _usage(self, cached_tokens: int) -> Usage:
        return Usage(
            input_tokens=self._input_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens),
            output_tokens=self._sampled,
            output_tokens_details=OutputTokensDetails(self._reasoning),
            total_tokens=self._input_tokens + self._sampled,
        )

    def _take(self, segments: list[Segment], *, complete: bool) -> list[Event]:
        out: list[Event] = []
        for segment in segments:
            if self.full:
                break
            if type(segment) is str:
                if self._emitter is not None:
                    out.append(self._emitter.text(segment))
            elif type(segment) is Opened:
                self._open(segment.header, out)
            elif type(segment) is Closed:
                self._close(segment, complete, out)
        return self._stamp(out)

    def _stamp(self, out: list[Event]) -> list[Event]:
        number = self._next_number
        for event in out:
            event.sequence_number = number
            number += 1
        self._next_number = number
        return out

    def _open(self, header: Header, out: list[Event]) -> None:
        if len(self.output) >= MAX_OUTPUT_ITEMS:
            return  # beyond what ids can name; the tokens still count
        self._header = header
        self._emitter = emitter_for(header, self._base.id, len(self.output), self._functions)
        out += self._emitter.open()

    def _close(self, closed: Closed, complete: bool, out: list[Event]) -> None:
        if self._emitter is None or self._header is None:
            return
        item, closing = self._emitter.close("completed" if complete else "incomplete")
        self.output.append(item)
        out += closing
        if isinstance(item, Reasoning):
            self._reasoning += len(closed.ids)
        kept = _kept(item, self._header, closed)
        if kept is not None:
            self.messages.append(kept)
            self.full = isinstance(item, FunctionCall) and not self._base.parallel_tool_calls
        self._emitter = None


def ended(machine: Machine, packed: bytes, max_tokens: int) -> Ending | None:
    """How a generation had ended of which `packed` is all that was sampled, or None where it is to go on.

    `max_tokens` is what could be sampled from its beginning. Where a worker died before it could say that it was
    done, there is nothing left to sample; an engine asked for more would go on behind the end.
    """
    last = tokens.unpack(packed[-tokens.BYTES_A_TOKEN :])
    if machine.full or (last and last[0] in tokens.STOPS):
        return Ending.STOP
    return Ending.LENGTH if machine.sampled >= max_tokens else None


def _kept(item: Item, header: Header, closed: Closed) -> StoredMessage | None:
    """The message for later prompts: its tokens as sampled where it was clean, else rendered anew.

    A call that was cut short is not kept: nobody can answer it, and a history with an open call confuses the model.
    """
    if isinstance(item, FunctionCall):
        return _kept_call(item, header, closed) if item.status == "completed" else None
    if closed.clean:
        return _as_sampled(header, closed, None)
    if isinstance(item, Reasoning):
        return _anew(item.content[0].text, "analysis")
    return _anew(item.content[0].text, "final" if item.phase == "final_answer" else "commentary")


def _kept_call(item: FunctionCall, header: Header, closed: Closed) -> StoredMessage:
    recipient = f"functions.{item.name}"
    if closed.clean and header.recipient == recipient:
        return _as_sampled(header, closed, item.call_id)
    return _anew(item.arguments, "commentary", recipient, "<|constrain|>json", item.call_id)


def _anew(
    text: str, channel: str, recipient: str | None = None, content_type: str | None = None, call_id: str | None = None
) -> StoredMessage:
    """The message as openai-harmony renders it; only one longer than a slice may have other ids where it is cut."""
    content: list[int] = []
    for start in range(0, len(text), SLICE_CHARS):
        content += tokens.encode(text[start : start + SLICE_CHARS])
    return frame(content, "assistant", channel=channel, recipient=recipient, content_type=content_type, call_id=call_id)


def _as_sampled(header: Header, closed: Closed, call_id: str | None) -> StoredMessage:
    """The tokens as the engine saw them, so that its prefix cache holds. History never has a `<|return|>`."""
    ids = list(closed.ids)
    if ids[0] != tokens.START:
        ids[:0] = _OPENING
    if closed.stop is not None:
        del ids[-1]
    ids.append(close_id("assistant", header.recipient))
    return StoredMessage(
        role="assistant",
        tokens=tokens.pack(ids),
        channel=header.channel,
        recipient=header.recipient,
        content_type=header.content_type,
        call_id=call_id,
    )
