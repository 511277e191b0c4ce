"""The message that is being sampled: which item it becomes, and how it stands in later prompts: as it was sampled, else
rendered anew.

An engine's prefix cache knows the tokens that it sampled, so keeping them is what makes a conversation cheap to go on
with. History never has a `<|return|>`, nor a call that nobody can answer.

Texts of `stop` end an answer before them: what may be the beginning of one waits until that is known. Only what the
caller sees is looked at, so a stop never falls into a thought, and never depends on tokens' bounds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.api import response as shapes
from service.api.citing import Cite, cite_nothing
from service.api.events import Event
from service.api.tools.builtin import CODE_TYPE
from service.api.tools.callee import FUNCTIONS, Callee
from service.grammar import checks
from service.harmony import tokens
from service.harmony.calls import cut_call
from service.harmony.header import CHANNELS, JSON_TYPE, Header
from service.harmony.render import close_id, frame, message
from service.harmony.segments import Closed
from service.responses.output import sealed
from service.responses.output.calls import OWN_CALLS, ActionEmitter
from service.responses.output.compaction import compaction_messages, fault_of
from service.responses.output.emitter import CompactionEmitter, Emitter, MessageEmitter, ReasoningEmitter, Seal
from service.responses.output.hosted import HOSTED, ApprovalRequestEmitter, undeclared_call
from service.responses.output.reading import speaking_in
from service.responses.output.rules import Rules
from store.turn import Messages, StoredMessage

Piece = tuple[str, Sequence[shapes.Logprob]]
"""Some text, and its tokens' log probabilities where they are shown."""


MAX_NAMES_SHOWN = 32
"""How many tools a feedback names."""


class Stopper:
    """Give it an answer's text piece by piece. Once a stop is `hit`, the answer ends."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._pending: list[Piece] = []
        self.hit = ""

    def take(self, text: str, logprobs: Sequence[shapes.Logprob] = ()) -> list[Piece]:
        """The pieces that may be shown by now: the text before a stop, which may cut the token in which it begins."""
        self._pending.append((text, logprobs))
        waiting = "".join(piece for piece, _ in self._pending)
        found = [(place + len(stop), place, stop) for stop in self._stops if (place := waiting.find(stop)) >= 0]
        if found:
            _, place, self.hit = min(found)  # the one that is whole first, however the text came
            return self._release(place, cut=True)
        return self._release(len(waiting) - begun_chars(waiting, self._stops), cut=False)

    def rest(self) -> list[Piece]:
        """The pieces that still wait, where the answer ended otherwise."""
        pieces, self._pending = self._pending, []
        return pieces

    def _release(self, chars: int, *, cut: bool) -> list[Piece]:
        """The waiting pieces up to so many characters; one that goes beyond waits on, unless it is to be cut."""
        out: list[Piece] = []
        while self._pending and len(self._pending[0][0]) <= chars:
            out.append(self._pending.pop(0))
            chars -= len(out[-1][0])
        if cut and chars:
            out.append((self._pending[0][0][:chars], ()))
        return out


def begun_chars(text: str, marks: Sequence[str]) -> int:
    """How many characters at the end of a text may be the beginning of one of these marks."""
    longest = 0
    for mark in marks:
        sizes = range(min(len(mark) - 1, len(text)), longest, -1)
        longest = next((size for size in sizes if text.endswith(mark[:size])), longest)
    return longest


SLICE_CHARS = 32_768
"""How much of a malformed message's text is encoded at once: at most 131,072 ids; the tokenizer refuses 200,000."""

MAX_SUMMARY_TOKENS = 1 << 20
"""Far more than any context has."""

NO_MORE_CALLS = "No more calls are possible: answer with what you have."

_OPENING = (tokens.START, tokens.ASSISTANT)


class Making(msgspec.Struct, frozen=True):
    """The parts that all items of a response are made with.

    `seal` takes a kind and a payload (sealed.py), for the tenant; only what `rules` want sealed needs it. `cites` are
    the parts of outcomes that an answer may cite, and `displays` what tools have displayed, of which `cite` makes the
    finder of its citations.
    """

    response_id: str
    rules: Rules
    seal: Seal | None = None
    cites: tuple[Mapping[str, Any], ...] = ()
    displays: tuple[Any, ...] = ()
    cite: Cite = cite_nothing


Target = Callee | str | None
"""Whom a message addresses: a tool, an undeclared one by its name, or nobody (`Rules.called`)."""


def is_answer(header: Header, target: Target) -> bool:
    """Whether a message is the answer to the caller, and no call."""
    return target is None and header.channel in (None, "final")


def emitter_for(making: Making, header: Header, target: Target, index: int) -> Emitter:
    """The kind of item that a message with this header becomes, at `index` of the output.

    A recipient decides before the channel does, because models call tools on any channel. Where there is none, analysis
    is reasoning, final and no channel an answer; commentary and channels that don't exist are preambles, so that text
    for the user stays visible. Of a compacting response, the answer is its compaction item.
    """
    rules, response_id = making.rules, making.response_id
    if isinstance(target, Callee):
        tool = target.hosted
        if tool is None:
            return OWN_CALLS[target.kind](response_id, index, target)
        if tool.approval:
            return ApprovalRequestEmitter(response_id, index, tool, header.channel)
        return HOSTED[tool.kind](response_id, index, tool)
    if target is not None:
        return undeclared_call(response_id, index, target)
    if header.channel == "analysis":
        seal = making.seal if rules.sealed else None
        return ReasoningEmitter(response_id, index, summarised=rules.summary is not None, seal=seal)
    answers = is_answer(header, target)
    if answers and rules.compacting and making.seal is not None:
        return CompactionEmitter(response_id, index, making.seal, rules.kept_messages, rules.newest)
    cites = answers and rules.answer is None and (making.cites or making.displays)
    citing = making.cite(making.cites, making.displays) if cites else None
    return MessageEmitter(response_id, index, "final_answer" if answers else "commentary", citing)


class OpenItem:
    """A message that is being sampled, as the item at `index` of the output."""

    def __init__(self, making: Making, header: Header, target: Target, index: int, *, enforced: bool) -> None:
        """`enforced` is whether an engine holds its content to its format, from its beginning on."""
        rules = making.rules
        self.header = header
        self.target = target
        self.emitter = emitter_for(making, header, target, index)
        self.answers = is_answer(header, target)
        """Whether it is the answer to the caller, and no call."""
        self.constraint = target.content if isinstance(target, Callee) else rules.answer if self.answers else None
        """The format that its content has to match."""
        self._stopper = Stopper(rules.stop) if rules.stop and self.answers else None
        self._keeps_raw = (
            target is not None or self.constraint is not None or isinstance(self.emitter, CompactionEmitter)
        )
        self._raw: list[str] = []
        """Its content as sampled, where the item may show another one."""
        self._shows_logprobs = rules.top_logprobs is not None
        self._pending: list[shapes.Logprob] = []
        """Of tokens that have made no text yet."""
        self.enforced = enforced
        plain = not self._keeps_raw and self._stopper is None and not self._shows_logprobs
        self.say = self.emitter.text if plain else None
        """Takes its text in place of `text`, where that is all there is to do with it: this is the hot path."""

    def claim(self, logprobs: Sequence[shapes.Logprob]) -> None:
        """The log probabilities of the tokens that its next text is made of."""
        if self._shows_logprobs:
            self._pending += logprobs

    def text(self, text: str) -> list[Event]:
        if self._keeps_raw:
            self._raw.append(text)
        logprobs, self._pending = self._pending, []
        return self._show([(text, logprobs)] if self._stopper is None else self._stopper.take(text, logprobs))

    def rest(self) -> list[Event]:
        """The events for text that was held back, as it may have been the beginning of a stop text."""
        return [] if self._stopper is None else self._show(self._stopper.rest())

    def _show(self, pieces: Sequence[Piece]) -> list[Event]:
        return [event for text, logprobs in pieces for event in self.emitter.text(text, logprobs)]

    @property
    def stopped(self) -> str:
        """The stop text that ended it; empty where none did."""
        return "" if self._stopper is None else self._stopper.hit

    @property
    def content(self) -> str:
        return "".join(self._raw)

    @property
    def is_aside(self) -> bool:
        """Whether it is reasoning or a preamble, behind which the response goes on."""
        return self.target is None and not self.answers

    @property
    def fault(self) -> str | None:
        """Why its content, now complete, doesn't match the requested format; None where it does."""
        if isinstance(self.emitter, CompactionEmitter):
            return fault_of(self.content)
        mismatch = None
        if self.constraint is not None:  # an enforced one, too, if that takes little: a server may have ignored it
            mismatch = checks.mismatch(self.constraint, self.content, enforced=self.enforced)
        if mismatch is None and isinstance(self.emitter, ActionEmitter):
            mismatch = self.emitter.fault_of(self.content)
        if mismatch is None:
            return None
        return f"The model's output does not match the format that was asked for: {mismatch}."

    def as_sampled(self, closed: Closed | None) -> StoredMessage | None:
        """The message for later prompts by its own tokens, unless it was malformed, addressed to nobody, or cut by a
        stop text.
        """
        if closed is None or not closed.clean or isinstance(self.emitter, CompactionEmitter):
            return None
        header = self.header
        meant = self.target.recipient if isinstance(self.target, Callee) else self.target
        if header.recipient != meant:
            return None
        ids = list(closed.ids)
        if ids[0] != tokens.START:
            ids[:0] = _OPENING
        if closed.stop is not None:
            del ids[-1]
        ids.append(close_id("assistant", header.recipient))
        return StoredMessage(
            "assistant", tokens.pack(ids), header.channel, header.recipient, content_type=header.content_type
        )

    def kept_messages(self, done: shapes.Item, sampled: StoredMessage | None, rules: Rules) -> Messages:
        """The messages that later prompts show for the item that it became.

        A call of the client's that was cut short leaves a note, and any other nothing: a history with an open call
        confuses the model.
        """
        if isinstance(done, shapes.Compaction):
            if not done.encrypted_content:
                return ()
            short = sealed.SealedCompaction(self.content, rules.kept_messages, rules.newest)
            return tuple(compaction_messages(short, limit=MAX_SUMMARY_TOKENS))
        if isinstance(done, shapes.Message | shapes.Reasoning):
            answer = "final" if isinstance(done, shapes.Message) and done.phase == "final_answer" else "commentary"
            channel = "analysis" if isinstance(done, shapes.Reasoning) else answer
            return (sampled or anew(done.content[0].text, channel),)
        if isinstance(done, shapes.OwnCall) and isinstance(callee := self.target, Callee):
            kind = JSON_TYPE if callee.takes_json else None
            if done.status != "completed":
                return (cut_call(done.call_id, callee.recipient, self.content, kind),)
            call = sampled or anew(self.content, "commentary", callee.recipient, kind)
            return (msgspec.structs.replace(call, call_id=done.call_id),)
        if isinstance(done, shapes.McpApprovalRequest | shapes.McpListTools) or done.status in (
            "incomplete",
            "in_progress",
        ):
            return ()
        return (sampled or anew(self.content, "commentary", str(self.target)),)

    def as_called(self, callee: Callee, sampled: StoredMessage | None) -> StoredMessage:
        """A call that the service has run, as later prompts have it: without an id, as nobody else answers it."""
        if callee.trained:
            channel = self.header.channel if self.header.channel == "commentary" else "analysis"
            return sampled or anew(self.content, channel, callee.recipient, CODE_TYPE)
        return sampled or anew(self.content, "commentary", callee.recipient, JSON_TYPE)


def feedback_on(target: str, rules: Rules, channel: str | None) -> StoredMessage:
    """The message to a model that called an undeclared tool. Never change its text: a worker of another release replays
    the tokens sampled behind it."""
    known_as = speaking_in(rules).name_of
    names = ", ".join(known_as(callee.recipient) for callee in rules.callable[:MAX_NAMES_SHOWN])
    others = f"The tools that can be called are: {names}." if names else "No tools can be called."
    text = f"Error: {known_as(target)} can't be called here. {others} Go on without it."
    name = target if "." in target or target == "python" else f"{FUNCTIONS}.{target}"  # never that of a role
    return message(
        text, "tool", name=name, channel=channel if channel in CHANNELS else "commentary", recipient="assistant"
    )


def tool_answer(text: str, recipient: str, channel: str | None, *, last: bool) -> StoredMessage:
    """The answer of a tool that the service runs, as the model reads it. Behind the `last` one no other can be called.
    Never change these texts: a worker of another release replays the tokens sampled behind them.
    """
    if last:
        text = f"{text}\n\n{NO_MORE_CALLS}" if text else NO_MORE_CALLS
    channel = channel if channel in CHANNELS else "commentary"
    return message(text, "tool", name=recipient, channel=channel, recipient="assistant")


def anew(text: str, channel: str, recipient: str | None = None, content_type: str | None = None) -> StoredMessage:
    """The message as openai-harmony renders it; only one longer than a slice may have other ids where it is cut."""
    content: list[int] = []
    for start in range(0, len(text), SLICE_CHARS):
        content += tokens.encode(text[start : start + SLICE_CHARS])
    return frame(content, "assistant", channel=channel, recipient=recipient, content_type=content_type)
