"""One response as a machine: sampled tokens in, events out.

Its phases and their legal moves are a table (phases.py); a call out of order is refused and changes nothing. The next
step is decided in next_step.py. Store the turn that `result` describes before anybody sees the terminal event. Sequence
numbers are stamped here and nowhere else. Events depend on the tokens alone, never on how the engine chunked them: so a
machine that `replay`s the tokens of another goes on as that one would have. No clock and no I/O: times are passed in.
"""

from array import array
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b

import msgspec

from service.api import events
from service.api import response as shapes
from service.api.citing import Cite, cite_nothing
from service.api.content import head_of
from service.api.events import Event
from service.api.ids import MAX_OUTPUT_ITEMS
from service.api.outcome import ApprovalOutcome, ApprovalRequest, HostedCall, Outcome, broken_off, display_note
from service.api.tools.callee import Callee
from service.engine.port import TokenLogprobs
from service.harmony import tokens
from service.harmony.header import Header
from service.harmony.messages import harmony_message
from service.harmony.pictures import ShownPicture, pictures_note
from service.harmony.segments import Closed, Opened, Segment
from service.responses.output.compaction import fault_of
from service.responses.output.emitter import Seal
from service.responses.output.endings import STATUS, Ending, terminal
from service.responses.output.hosted import (
    ApprovalRequestEmitter,
    HostedCallEmitter,
    ServerCallEmitter,
    listing_events,
)
from service.responses.output.open_message import Making, OpenItem, feedback_on, is_answer, tool_answer
from service.responses.output.phases import Move, Phase, after
from service.responses.output.reading import DIGEST_BYTES, SAMPLED, Piece, SampledNote, speaking_in
from service.responses.output.rules import AfterCompaction, Rules
from store.turn import Messages, Picture, StoredMessage

REPLAY_IDS = 2_000
"""How many ids are replayed in one step: some 2 ms."""

MAX_FEEDBACKS = 1
"""How often a model gets feedback that it called an undeclared tool, before its response fails."""

_UNREADABLE_CALL = "The model wrote a call that can't be read."

_SAMPLING, _FULL = Phase.SAMPLING, Phase.FULL
_STEERABLE = (_SAMPLING, Phase.CONSTRAINED, Phase.FEEDBACK)
_TAKING = (_SAMPLING, Phase.CONSTRAINED)
_ONWARD = (_SAMPLING, _FULL)


class _Calling(msgspec.Struct, frozen=True):
    """A call that the service runs: who shows it, and where the model made it; with its message, unless that stands in
    an earlier turn.
    """

    recipient: str
    channel: str | None
    emitter: HostedCallEmitter
    said: Messages = ()


class Machine:
    """From `base`, the response with its configuration and nothing else, to its terminal event.

    `input_tokens` is the length of the prompt; `seal` closes what is to be sealed to the tenant, and `cite` makes the
    finders of citations.
    """

    def __init__(
        self,
        base: shapes.Response,
        rules: Rules,
        input_tokens: int,
        seal: Seal | None = None,
        cite: Cite = cite_nothing,
    ) -> None:
        self._base = base
        self._all_rules = rules
        self.after_compaction = rules.after_compaction
        """How it goes on behind its own compaction, where it makes one first."""
        self.rules = rules.first
        """The rules in force now: a response that compacts before it answers has one set for each."""
        self._making = Making(base.id, self.rules, seal, displays=rules.displays, cite=cite)
        self.stretches = speaking_in(rules).reading(input_tokens)
        self._unclaimed: list[shapes.Logprob] = []
        """The log probabilities of tokens of which no text has come yet."""
        self.open_item: OpenItem | None = None
        """The message that is being sampled; None between two of them."""
        self._digest = blake2b(digest_size=DIGEST_BYTES) if rules.keeps else None
        self._logprobs = array("f")
        self.phase = Phase.NEW
        self.next_number = 0
        """The sequence number of the next event: one more than that of the last, and how many there were."""
        self.output: list[shapes.Item] = []
        self.messages: list[StoredMessage] = []
        """The messages sampled and those of feedback, as they will stand in later prompts."""
        self.pictures: list[Picture] = []
        """The pictures of servers' answers, each as often as the messages show it."""
        self.asked: list[ApprovalRequest] = []
        """The approvals that it asks for."""
        self.gone_on: list[ApprovalRequest] = []
        """The requests from which it went on."""
        answers = rules.answers
        self._answers: list[ApprovalOutcome] = [] if answers is None else list(reversed(answers.given))
        """The answers that are left to handle before anything is sampled, the next one last."""
        self._behind: Messages | None = None if answers is None else answers.behind
        """The messages that then stand before the model."""
        self.calls = 0
        """How many of the caller's tools it called, and calls it asked somebody to approve."""
        self.hosted_calls = 0
        """How many tools the service has called for it."""
        self.pending: HostedCall | None = None
        """The call of a tool whose outcome it waits for."""
        self._calling: _Calling | None = None
        self.feedback: StoredMessage | AfterCompaction | None = None
        """The model's next input before it goes on, as long as it waits for it."""
        self.fault: str | None = None
        """The model's mistake that can't be repaired; the response then fails."""
        self.steered = False
        """Whether the caller has said something meanwhile: then nothing is taken behind the next `boundary`."""
        self._left: list[Event] = []
        """The events of ids amid which a bug has struck; they go out with those of the end."""
        self._first_of_last = 0
        """The number of the first of the last events, once they were made."""

    # --- the beginning ---

    def begin(self, *, samples: bool = True) -> list[Event]:
        """The response is created and, unless nothing is to be sampled, in progress."""
        self._move(Move.BEGIN)
        out: list[Event] = [events.ResponseCreated(response=self._base)]
        if samples:
            out += self._in_progress()
        return self._stamp(out)

    def queue(self) -> list[Event]:
        """The response is created and waits for a worker."""
        self._move(Move.QUEUED)
        waiting = msgspec.structs.replace(self._base, status=shapes.ResponseStatus.QUEUED)
        return self._stamp([events.ResponseCreated(response=waiting), events.ResponseQueued(response=waiting)])

    def start(self) -> list[Event]:
        """A worker begins with the queued response. However many attempts it takes, it begins once."""
        self._move(Move.START)
        return self._stamp(self._in_progress())

    def _in_progress(self) -> list[Event]:
        """It is in progress; first come the tools that servers listed for it, then the approved calls."""
        out: list[Event] = [events.ResponseInProgress(response=self._base)]
        for listed in self._all_rules.listed:
            item, shown = listing_events(self._base.id, len(self.output), listed)
            self.output.append(item)
            out += shown
        return out + self._next_answer()

    def _next_answer(self) -> list[Event]:
        """The next call that was approved, as an item; behind the last one the model goes on."""
        while self._answers:
            answer = self._answers.pop()
            if answer.tool is not None:
                request = answer.request
                emitter = ServerCallEmitter(self._base.id, len(self.output), answer.tool, request.id)
                self.pending = HostedCall(emitter.id, answer.tool, request.arguments, approved=request)
                self._calling = _Calling(answer.recipient, request.channel, emitter)
                self._move(Move.CALL)
                opened = emitter.open()
                return [*opened, *(emitter.text(request.arguments) if request.arguments else ()), *emitter.call()]
            if answer.told is not None:
                self.messages.append(answer.told)
        if self._behind is not None:
            answers = len(self.messages)
            self.messages += self._behind
            self._behind = None
            self.stretches.begin_behind(self.messages, answers)
        return []

    # --- what is sampled ---

    def feed(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None = None, text: str = "") -> list[Event]:
        """Take sampled ids, up to where the engine must be asked anew (`sampled` tells how far); the events they make.

        With `logprobs`, one an id, each of an answer's tokens is shown with its own. `text` is what the ids say, from a
        model that doesn't speak Harmony; all of them are taken.
        """
        if not ids or (self.steered and self.boundary):
            return []
        if self.phase is not _SAMPLING:
            self._move(Move.FEED)
        out: list[Event] = []
        shown, before = logprobs if self.rules.top_logprobs is not None else None, self.stretches.sampled
        try:
            words = self.stretches.words(ids, text) if shown is None else None
            if words is not None:
                self._take(words, out, complete=True)
                self._note_sampled(ids, logprobs)
                return self._stamp(out)
            for segments, known in self.stretches.read(ids, text, shown):
                if known:
                    self._unclaimed += known
                self._take(segments, out, complete=True)
                if self.stretches.asks_anew and (self.phase not in _ONWARD or (self.steered and self.boundary)):
                    break
        except Exception:  # nothing more is read
            self._left, self.phase = out, _FULL
            raise
        self._note_sampled(ids[: self.stretches.sampled - before], logprobs)
        return self._stamp(out)

    def _note_sampled(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None) -> None:
        """Take what was sampled into its note, where that is kept."""
        if self._digest is not None:
            self._digest.update(array("q", ids))
            self._logprobs.extend([each.logprob for each in (logprobs or ())[: len(ids)]])

    def sampled_note(self) -> list[StoredMessage]:
        """The note of all that was sampled, where it is kept."""
        if self._digest is None or not self.stretches.sampled:
            return []
        known = self._logprobs if len(self._logprobs) == self.stretches.sampled else array("f")
        note = SampledNote(self._digest.digest(), known.tobytes())
        return [StoredMessage(SAMPLED, b"", name=msgspec.json.encode(note).decode())]

    def give_feedback(self) -> None:
        """Give the model its `feedback`. It answers behind that, as at the beginning of a prompt."""
        self._move(Move.GIVE_FEEDBACK)
        feedback, self.feedback = self.feedback, None
        if isinstance(feedback, AfterCompaction):
            making, self.rules = self._making, self._all_rules.then
            self._making = msgspec.structs.replace(making, rules=self.rules, cites=())
            self.stretches.begin_anew(self.messages, feedback.prefix_tokens)
        elif feedback is not None:
            self._keep([feedback])
            self.stretches.give_feedback(self.messages)

    def limit_pictures(self, outcome: Outcome) -> Outcome:
        """An outcome with those of its pictures for which the response has room; of the others the lines are left."""
        room = self._all_rules.pictures
        shown = () if room is None else room.takes(outcome.pictures, self.pictures)
        return msgspec.structs.replace(outcome, pictures=shown)

    def take_outcome(self, outcome: Outcome) -> list[Event]:
        """Take the outcome of the `pending` call, which the model is told; the events that end its item."""
        calling = self._calling
        self._move(Move.TAKE_OUTCOME)
        out = [] if calling is None else self._end_call(calling, outcome)
        making, self.rules = self._making, self.rules.after_call(self.hosted_calls)
        cites = (*making.cites, outcome.cites) if outcome.cites else making.cites
        shown = making.displays if outcome.display is None else (*making.displays, outcome.display)
        self._making = msgspec.structs.replace(making, rules=self.rules, cites=cites, displays=shown)
        if self._behind is None:
            self.stretches.give_feedback(self.messages, counts=False)
        else:
            out += self._next_answer()
        return self._stamp(out)

    def _end_call(self, calling: _Calling, outcome: Outcome) -> list[Event]:
        call, self.pending, self._calling = self.pending, None, None
        done, closing = calling.emitter.end(outcome)
        self.output.append(done)
        self.hosted_calls += 1
        last = self.hosted_calls >= self.rules.hosted_calls and not any(each.tool for each in self._answers)
        notes = [] if outcome.display is None else [display_note(calling.emitter.tool.kind, outcome.display)]
        answer = tool_answer(outcome.told, calling.recipient, calling.channel, last=last)
        self._keep([*calling.said, *notes, answer, *self._note_pictures(outcome)])
        if call is not None and call.approved is not None:
            self.gone_on.append(call.approved)
        return closing

    def _note_pictures(self, outcome: Outcome) -> list[StoredMessage]:
        """The note of an outcome's pictures, if it has any, which are taken."""
        shown: list[ShownPicture] = []
        for each in outcome.pictures:
            picture = Picture.of(each.data)
            self.pictures.append(picture)
            size, head = len(each.data), head_of(each.data)
            shown.append(ShownPicture(picture.digest.hex(), *head, size, "auto", each.at, each.line))
        return [pictures_note(shown)] if shown else []

    def replay(
        self,
        packed: bytes,
        logprobs: Sequence[TokenLogprobs] | None = None,
        outcomes: Sequence[Outcome] = (),
        pieces: Sequence[Piece] = (),
    ) -> Generator[None, None, None]:
        """Take ids (`tokens.pack`) whose events are known, in steps, with the outcomes of the calls among them, and
        give feedback where it was given. `pieces` are what they say, of a model that doesn't speak Harmony.

        `next_number` is then that of the next event. A call without an outcome may have been carried out.
        """
        ids, before, known, told = tokens.unpack(packed), self.stretches.sampled, iter(outcomes), iter(pieces)
        while (start := self.stretches.sampled - before) < len(ids) or self.phase is Phase.CALLING:
            if self.phase is Phase.CALLING:
                outcome = next(known, None)
                if outcome is not None:
                    self.take_outcome(outcome)
                    continue
                if start == len(ids):
                    break
            piece = next(told, None)
            if piece is not None and piece.prompt is not None:
                self.stretches.prompted(piece.prompt, piece.thinking)
                continue
            end = start + (REPLAY_IDS if piece is None else piece.ids)
            self.feed(ids[start:end], None if logprobs is None else logprobs[start:end], piece.text if piece else "")
            if self.phase is Phase.FEEDBACK:
                self.give_feedback()
            yield
        if self.pending is not None:
            self.pending = msgspec.structs.replace(self.pending, begun=True)
        if self.open_item is not None and self.phase is not Phase.CONSTRAINED:
            self.open_item.enforced = False

    def diverge(self, number: int) -> None:
        """Note that elsewhere the same tokens made other events, of which the last had the number before this one. Only
        the end is left. Open items are closed here without an event.
        """
        self.end(Ending.ERROR, Move.DIVERGE)
        self.next_number = number

    # --- where it stands ---

    @property
    def boundary(self) -> Ending | None:
        """How a steered response ends where it stands, None where it goes on: an answer is cut anywhere, but for one
        behind a call; every other message is heard to its end. One that has called a tool ends by itself, as its caller
        owes it an output.
        """
        if not self.steered or self.phase not in _STEERABLE:
            return None
        if self.open_item is not None and (self.calls or not self.open_item.answers):
            return None
        return Ending.STOP if self.calls else Ending.STEERED

    def snapshot(self) -> shapes.Response:
        """The response as it stands: the fold of its events so far."""
        open_one = self._calling or self.open_item
        so_far = None if open_one is None else open_one.emitter.so_far()
        return msgspec.structs.replace(self._base, output=[*self.output, so_far] if so_far else self.output)

    # --- the end ---

    def end(self, ending: Ending, move: Move = Move.END) -> list[Event]:
        """The generation is over: close the open item. A stop completes it, anything else leaves it incomplete."""
        ended = after(self.phase, move)
        out, self._left = self._left, []
        try:
            if self._calling is not None and self.pending is not None:
                out += self._end_call(self._calling, broken_off(self.pending))
            elif self.phase is not _FULL:
                self._take(self.stretches.end(), out, complete=ending is Ending.STOP)
            if self.open_item is not None:  # a bug has struck in it
                self._shut(self.open_item, None, "incomplete", out)
            self.messages += self._behind or ()
            if isinstance(self.feedback, StoredMessage):
                self._keep([self.feedback])  # later requests of the conversation find the call answered
        except Exception:
            self._left, self.phase = out, _FULL
            raise
        self._behind = self.feedback = None
        if ending is Ending.STOP and self.fault is None:
            if not self.calls and self.rules.choice == "required":
                self.fault = "The model called no tool, although one was required."
            elif self.rules.compacting and not any(isinstance(item, shapes.Compaction) for item in self.output):
                self.fault = fault_of("")
        self.phase = ended
        return self._stamp(out)

    def result(self, ending: Ending, *, now: int, error: shapes.ResponseError | None = None) -> shapes.Response:
        """The finished response. `now` is unix seconds; `error` is for endings that fail."""
        self._move(Move.RESULT)
        if self.fault is not None:
            ending, error = Ending.ERROR, shapes.ResponseError("server_error", self.fault)
        status, incomplete, messages = STATUS[ending], None, msgspec.UNSET
        if ending is Ending.STOP and len(self.output) <= bool(self.after_compaction) + len(self._all_rules.listed):
            status, incomplete = shapes.ResponseStatus.INCOMPLETE, shapes.IncompleteDetails("no_output")
        elif status is shapes.ResponseStatus.INCOMPLETE:
            incomplete = shapes.IncompleteDetails("steered" if ending is Ending.STEERED else "max_output_tokens")
        if self.rules.harmony:  # without notes, and those that the caller sent beside approvals
            answers = self._all_rules.answers
            sent = set(map(id, answers.behind)) if answers is not None else ()
            shown = [message for message in self.messages if message.tokens and id(message) not in sent]
            messages = list(map(harmony_message, shown))
        return msgspec.structs.replace(
            self._base,
            status=status,
            output=self.output,
            usage=self.stretches.usage(by_stretch=self.rules.harmony),
            error=error if status is shapes.ResponseStatus.FAILED else None,
            incomplete_details=incomplete,
            completed_at=now if status is shapes.ResponseStatus.COMPLETED else None,
            output_messages=messages,
        )

    def terminal(self, response: shapes.Response, before: Sequence[Event] = ()) -> list[Event]:
        """The last events: what comes `before` them, the terminal one, and before a failure's an `error` that says why.

        Where nobody was told of them, as the response was to end otherwise by then, they are made anew in their place.
        """
        if self.phase is Phase.CLOSED:
            self.next_number = self._first_of_last
        self._move(Move.TERMINAL)
        self._first_of_last = self.next_number
        return self._stamp([*before, *terminal(response)])

    # --- segments ---

    def _move(self, move: Move) -> None:
        self.phase = after(self.phase, move)

    def number(self) -> int:
        """The next number, for an event that is about the response and not one of its own."""
        number, self.next_number = self.next_number, self.next_number + 1
        return number

    def _stamp(self, out: list[Event]) -> list[Event]:
        number = self.next_number
        for event in out:
            event.sequence_number = number
            number += 1
        self.next_number = number
        return out

    def _take(self, segments: list[Segment], out: list[Event], *, complete: bool) -> None:
        for segment in segments:
            if self.phase not in _TAKING:
                self.stretches.dropped = True  # behind the last call, or before that was answered
                break
            item = self.open_item
            if type(segment) is str:
                if item is None:
                    continue
                if self._unclaimed:
                    item.claim(self._unclaimed)
                    self._unclaimed = []
                if item.say is not None:
                    out += item.say(segment)
                    continue
                out += item.text(segment)
                if item.stopped:
                    self._base = shapes.Extensions.extend(self._base, stop=item.stopped)
                    self.stretches.dropped = True
                    self._move(Move.FILL)
                    self._shut(item, None, "completed", out)
            elif type(segment) is Opened:
                self._open(segment.header, out)
                del self._unclaimed[self.stretches.before_text]
                if not self.stretches.asks_anew:
                    continue  # its content is held to its format from the generation's beginning
                if segment is segments[-1] and self.open_item and self.open_item.constraint is not None:
                    self._move(Move.CONSTRAIN)
            elif type(segment) is Closed and item is not None:
                self._unclaimed.clear()
                self._close(item, segment, complete, out)

    def _open(self, header: Header, out: list[Event]) -> None:
        rules = self.rules
        target = rules.callee_of(header.recipient, header.channel)
        said = target is None and not self.stretches.asks_anew  # another model than gpt-oss may speak behind its calls
        if self.calls and not said and not (isinstance(target, Callee) and target.awaits):
            self._move(Move.FILL)  # behind its calls the model waits for outputs; whatever else it says is made up
            return
        if len(self.output) >= MAX_OUTPUT_ITEMS or header.role == "tool":
            return  # beyond what ids can name, or an output that no tool has given; the tokens still count
        if rules.compacting and not is_answer(header, target):
            return
        enforced = self.stretches.asks_anew
        self.open_item = item = OpenItem(self._making, header, target, len(self.output), enforced=enforced)
        out += item.emitter.open()

    def _close(self, item: OpenItem, closed: Closed, complete: bool, out: list[Event]) -> None:
        out += item.rest()
        fault = item.fault if complete else None
        if not self.stretches.asks_anew and item.target is not None and closed.stop is None:
            fault = _UNREADABLE_CALL if complete else None  # what was cut short is no fault of the model's
            complete, self.stretches.dropped = False, True  # it is not kept
        if fault is not None:
            self.fault = fault
            self._move(Move.FILL)
        elif closed.stop == tokens.CALL and item.target is None:
            self._move(Move.FILL)  # the mark of a call ends what the model says, call or not
        elif isinstance(item.emitter, HostedCallEmitter) and isinstance(item.target, Callee):
            if complete and closed.stop is not None:
                tool = item.emitter.tool
                include, shown = self.rules.include, self._making.displays
                self.pending = HostedCall(item.emitter.id, tool, item.content, include=include, displays=shown)
                said = (item.as_called(item.target, item.as_sampled(closed)),)
                self.open_item = None
                self._calling = _Calling(item.target.recipient, item.header.channel, item.emitter, said)
                out += item.emitter.call()
                self._move(Move.CALL)
                return
            complete = False  # nobody runs what the model may not have ended
        elif isinstance(item.emitter, ApprovalRequestEmitter) and not (complete and closed.stop is not None):
            self.open_item = None  # nobody is asked about what the model may not have ended
            return
        self._shut(item, closed, "completed" if complete and fault is None else "incomplete", out)

    def _shut(self, item: OpenItem, closed: Closed | None, status: shapes.ItemStatus, out: list[Event]) -> None:
        """The open item ends, by a closing mark or, without one, by a stop text."""
        sampled = item.as_sampled(closed)
        self.open_item = None  # also where closing it fails
        done, closing = item.emitter.close(status, sampled)
        self.output.append(done)
        out += closing
        if isinstance(done, shapes.Reasoning) and closed is not None:
            self.stretches.reasoning += len(closed.ids)
        emitter, callee = item.emitter, item.target
        if status == "completed" and isinstance(emitter, ApprovalRequestEmitter) and isinstance(callee, Callee):
            self._keep([item.as_called(callee, sampled)])
            self.asked.append(emitter.request)
        else:
            self._keep(item.kept_messages(done, sampled, self.rules))
        if status != "completed":
            return
        if isinstance(callee, Callee):
            self.calls += 1
            if self.calls >= self.rules.parallel:
                self._move(Move.FILL)
        elif callee is not None and self.stretches.feedbacks < MAX_FEEDBACKS:
            self.feedback = feedback_on(callee, self.rules, item.header.channel)
        elif callee is not None:
            self.fault = f"The model called '{callee}' again, a tool that it can't call here."
            self._move(Move.FILL)
        elif isinstance(done, shapes.Compaction) and self.phase is not _FULL:
            self.feedback = self.after_compaction
        if self.feedback is not None:
            self._move(Move.WAIT)

    def _keep(self, messages: Iterable[StoredMessage]) -> None:
        """Messages for later prompts, which show the newest item, or answer it."""
        number = len(self.output) - 1
        self.messages += [msgspec.structs.replace(message, item=number) for message in messages]
