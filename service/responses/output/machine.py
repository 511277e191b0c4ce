"""One response as a machine: sampled tokens in, events out.

The caller's duties, in order: `begin` once; `feed` what is sampled, and where it took less than it was given, do first
what it wants: `tell` what is `owed`, or else ask the engine anew (course.py); `end` once, with how it ended; store the
turn that `result` describes; only then let the terminal event be seen. A background response has `queued` and later
`start` in place of `begin`. Sequence numbers are stamped here and nowhere else. Events depend on the tokens alone,
never on how the engine chunked them: so a machine that `replay`s the tokens of another goes on as that one would
have. No clock and no I/O: times are passed in.
"""

from collections.abc import Callable, Generator, Sequence

import msgspec

from service.api import events
from service.api.events import Event
from service.api.ids import MAX_OUTPUT_ITEMS
from service.api.response import (
    Compaction,
    Item,
    ItemStatus,
    Logprob,
    Reasoning,
    Response,
    ResponseError,
    ResponseStatus,
)
from service.api.tools.callee import Callee
from service.grammar import tags
from service.harmony import tokens
from service.harmony.header import Header
from service.harmony.segments import Closed, Opened, Segment, Segmenter, State
from service.responses.output.endings import STATUS, Ending, finished, terminal
from service.responses.output.items.emitter import Making, Seal, emitter_for
from service.responses.output.logprobs import TokenLogprobs, shown_logprob
from service.responses.output.open_message import OpenItem, told
from service.responses.output.stops import Stopper
from service.responses.output.usage import Cached, Stretches
from service.responses.rules import AfterCompaction, Rules
from store.turn import StoredMessage

__all__ = ["STATUS", "Ending", "Machine"]

REPLAY_IDS = 2_000
"""How many ids are replayed in one step: some 2 ms."""

MAX_TOLD = 1
"""How often a model is told that it called a tool that isn't there, before its response fails."""


class Machine:
    """From `base`, the response with its configuration and nothing else, to its terminal event.

    `input_tokens` is the length of the prompt; `seal` closes what is to be sealed to the tenant.
    """

    def __init__(self, base: Response, rules: Rules, input_tokens: int, seal: Seal | None = None) -> None:
        self._base = base
        self._whole = rules
        self.rules = rules.first
        self.after_compaction = rules.after_compaction
        """How it goes on behind its own compaction, where it makes one first."""
        self._making = Making(base.id, self.rules, seal, rules.kept_messages)
        self._segmenter = Segmenter()
        self._next_number = 0
        self.stretches = Stretches(input_tokens)
        self._open_item: OpenItem | None = None
        self._say: Callable[[str], list[Event]] | None = None
        """Takes the open item's text where that is all there is to do with it."""
        self._pending: list[Logprob] = []
        """Of tokens that have made no text yet."""
        self._fresh = False
        self.taken = 0
        """How many ids the last `feed` took."""
        self.output: list[Item] = []
        self.messages: list[StoredMessage] = []
        """The messages sampled and told, as they will stand in later prompts."""
        self.calls = 0
        """How many of the caller's tools it called."""
        self.full = False
        """Whether the response may have no more items. What follows is dropped."""
        self.owed: StoredMessage | AfterCompaction | None = None
        """What the model has to be told before it goes on, or how its prompt begins anew: `tell` it."""
        self._told = 0
        self.fault: str | None = None
        """What the model did wrong beyond repair; the response then fails."""

    # --- the beginning ---

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

    # --- what is sampled ---

    def feed(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None = None) -> list[Event]:
        """Take sampled ids, up to where the engine must be asked anew (`taken` says how far); the events they make.

        With `logprobs`, one an id, each of an answer's tokens is shown with its own.
        """
        out: list[Event] = []
        if logprobs is None and not self.full and ids and max(ids) < tokens.FIRST_SPECIAL and min(ids) >= 0:
            self._fresh, self.taken = False, len(ids)  # nearly all chunks are words alone
            self.stretches.tail.extend(ids)
            self._take(self._segmenter.feed(ids), out, complete=True)
        else:
            self._feed_piecewise(ids, logprobs, out)
        self.stretches.add(self.taken)
        return self._stamp(out)

    def _feed_piecewise(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None, out: list[Event]) -> None:
        """Take ids up to each mark, behind any of which the engine may have to be asked anew, or one by one."""
        place = 0
        while place < len(ids):
            if self.full:
                place = len(ids)
                break
            end = tokens.behind_the_next_mark(ids, place) if logprobs is None else place + 1
            piece, self._fresh = ids[place:end], False
            self.stretches.tail.extend(id for id in piece if 0 <= id <= tokens.LAST_LEGAL)
            if logprobs is not None:
                self._note(piece[0], logprobs[place])
            self._take(self._segmenter.feed(piece), out, complete=True)
            place = end
            if self.owed is not None or self.held is not None:
                break
        self.taken = place

    def tell(self) -> None:
        """Tell the model what is `owed` to it. It answers behind that, as at the beginning of a prompt."""
        owed, self.owed = self.owed, None
        if owed is None:
            raise ValueError("nothing is owed to the model")
        self._segmenter = Segmenter()
        if isinstance(owed, AfterCompaction):
            self.rules = self._whole.then
            self._making = Making(self._base.id, self.rules, self._making.seal)
            self.stretches.begin_anew(owed.prefix_tokens, self.messages)
        else:
            self.messages.append(owed)
            self.stretches.give_feedback(owed)

    def note_cached(self, cached_tokens: int) -> None:
        """The engine's prefix cache held so much of the prompt of what is being sampled."""
        self.stretches.note_cached(cached_tokens)

    @property
    def cached_tokens(self) -> Cached:
        """What `note_cached` was told."""
        return self.stretches.cached

    def replay(self, packed: bytes, logprobs: Sequence[TokenLogprobs] | None = None) -> Generator[None, None, None]:
        """Take ids (`tokens.pack`) whose events are known, in steps, and tell what is owed where it was told.

        `next_number` is then that of the next event.
        """
        ids = tokens.unpack(packed)
        start = 0
        while start < len(ids):
            end = start + REPLAY_IDS
            self.feed(ids[start:end], None if logprobs is None else logprobs[start:end])
            start += self.taken
            if self.owed is not None:
                self.tell()
            yield
        if self._open_item is not None and self.held is None:
            yield from self._open_item.let_go()

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

    # --- where it stands ---

    @property
    def sampled(self) -> int:
        """How many ids it was fed."""
        return self.stretches.sampled

    @property
    def held(self) -> str | None:
        """The format of the open message's content, where it must be held and nothing of it has been sampled yet."""
        return self._open_item.held if self._open_item is not None and self._fresh else None

    @property
    def breaks_off(self) -> bool:
        """Whether nothing more is wanted of what the engine is at."""
        return self.full or self.owed is not None or self.held is not None

    @property
    def header_state(self) -> tags.HeaderState | None:
        """Where a constraint on headers would begin from here; None where none can."""
        state = self._segmenter.state
        if state is State.HEADER:
            return tags.HeaderState.NEXT if self._segmenter.at_start else None
        if state is State.BETWEEN:
            return tags.HeaderState.CALLED if self.calls else tags.HeaderState.BETWEEN
        free = self._open_item is None or self._open_item.is_aside
        return tags.HeaderState.INSIDE if free else None

    @property
    def over(self) -> Ending | None:
        """How the response has ended by what was sampled alone, or None where the model is to go on."""
        if self.fault is not None:
            return Ending.ERROR
        if self.owed is not None:
            return None
        last = self.stretches.last
        goes_on = last == tokens.CALL and 0 < self.calls < self.rules.parallel
        return Ending.STOP if self.full or (last in tokens.ENDS and not goes_on) else None

    def snapshot(self) -> Response:
        """The response as it stands: what its events so far come to."""
        if self._open_item is None:
            return msgspec.structs.replace(self._base, output=self.output)
        return msgspec.structs.replace(self._base, output=[*self.output, self._open_item.emitter.so_far()])

    # --- the end ---

    def end(self, ending: Ending) -> list[Event]:
        """The generation is over: close the open item. A stop completes it, anything else leaves it incomplete."""
        out: list[Event] = []
        if not self.full:
            self._take(self._segmenter.end(), out, complete=ending is Ending.STOP)
        if isinstance(self.owed, StoredMessage):
            self.messages.append(self.owed)  # whoever goes on with the conversation finds the call answered
            self.owed = None
        if ending is Ending.STOP and not self.calls and self.rules.choice == "required" and self.fault is None:
            self._fail("The model called no tool, although it had to.")
        return self._stamp(out)

    def result(self, ending: Ending, *, now: int, error: ResponseError | None = None) -> Response:
        """The finished response. `now` is unix seconds; `error` is for endings that fail."""
        if self.fault is not None:
            ending, error = Ending.ERROR, ResponseError("server_error", self.fault)
        return finished(
            self._base,
            ending,
            self.output,
            self.stretches.usage(),
            answered=len(self.output) > (self.after_compaction is not None),
            now=now,
            error=error,
            messages=self.messages if self.rules.harmony else None,
        )

    def terminal(self, response: Response) -> list[Event]:
        """The last events: the terminal one, and before a failure's an `error` that says why."""
        return self._stamp(terminal(response))

    # --- segments ---

    def _stamp(self, out: list[Event]) -> list[Event]:
        number = self._next_number
        for event in out:
            event.sequence_number = number
            number += 1
        self._next_number = number
        return out

    def _note(self, token: int, logprob: TokenLogprobs) -> None:
        if self._open_item is not None and 0 <= token < tokens.FIRST_SPECIAL:
            self._pending.append(shown_logprob(token, logprob))

    def _take(self, segments: list[Segment], out: list[Event], *, complete: bool) -> None:
        for segment in segments:
            if self.full:
                break
            if type(segment) is str:
                if self._say is not None:
                    out += self._say(segment)
                elif self._open_item is not None:
                    self._text(self._open_item, segment, out)
            elif type(segment) is Opened:
                self._open(segment.header, out)
            elif type(segment) is Closed and self._open_item is not None:
                self._close(self._open_item, segment, complete, out)

    def _open(self, header: Header, out: list[Event]) -> None:
        target = self.rules.called(header.recipient, header.channel)
        if self.calls and not isinstance(target, Callee):
            self.full = True  # behind its calls the model waits for their outputs; whatever else it says is made up
            return
        if len(self.output) >= MAX_OUTPUT_ITEMS or header.role == "tool":
            return  # beyond what ids can name, or a tool's word that no tool has said; the tokens still count
        answers = target is None and header.channel in (None, "final")
        if self.rules.compacting and not answers:
            return
        emitter = emitter_for(self._making, header, len(self.output))
        held = target.content if isinstance(target, Callee) else self.rules.answer if answers else None
        stopper = Stopper(self.rules.stop) if answers and self.rules.stop else None
        self._open_item = OpenItem(header, target, emitter, held, stopper)
        self._pending = []
        plain = not self._open_item.keeps_raw and stopper is None and self.rules.top_logprobs is None
        self._say = emitter.text if plain else None
        self._fresh = True
        out += emitter.open()

    def _text(self, item: OpenItem, text: str, out: list[Event]) -> None:
        self._fresh = False
        item.take(text)
        logprobs, self._pending = self._pending, []
        if item.stopper is None:
            out += item.emitter.text(text, logprobs)
            return
        for piece, shown in item.stopper.take(text, logprobs):
            out += item.emitter.text(piece, shown)
        if item.stopper.hit:
            self.full = True
            self._shut(item, None, "completed", out)

    def _close(self, item: OpenItem, closed: Closed, complete: bool, out: list[Event]) -> None:
        if item.stopper is not None:
            for piece, shown in item.stopper.rest():
                out += item.emitter.text(piece, shown)
        fault = item.fault if complete else None
        if fault is not None:
            self._fail(fault)
            complete = False
        self._shut(item, closed, "completed" if complete else "incomplete", out)
        if closed.stop == tokens.CALL and item.target is None:
            self.full = True  # the mark of a call ends what the model says, call or not

    def _shut(self, item: OpenItem, closed: Closed | None, status: ItemStatus, out: list[Event]) -> None:
        """The open item is over, by a closing mark or, without one, by a stop text."""
        sampled = item.as_sampled(closed)
        done, closing = item.emitter.close(status, sampled)
        self._open_item = self._say = None
        self.output.append(done)
        out += closing
        if isinstance(done, Reasoning) and closed is not None:
            self.stretches.reasoning += len(closed.ids)
        self.messages += item.kept(done, sampled, self.rules)
        if status == "completed" and isinstance(done, Compaction) and self.after_compaction is not None:
            self.owed = self.after_compaction
        if status != "completed" or item.target is None:
            return
        if isinstance(item.target, Callee):
            self.calls += 1
            self.full = self.calls >= self.rules.parallel
        elif self._told < MAX_TOLD:
            self._told += 1
            self.owed = told(item.target, self.rules, item.header.channel)
        else:
            self._fail(f"The model called '{item.target}' again, a tool that it can't call here.")

    def _fail(self, why: str) -> None:
        self.fault, self.full = why, True
