"""The three ways in which models speak: how each stretch of a response is prompted, and how its tokens are read.

    HarmonyReading      the ids are all there is; feedback stands behind them in the same prompt
    TemplatedReading    a chat template makes every prompt anew, and the parser of the model's family reads the text
    ServedReading       the same, but the server makes the prompts, and tells how long they were

The machine takes the segments, which are the same for all, and knows no more of a model than `asks_anew`.

A stretch is a run of tokens sampled without a break: a response has several where the model got feedback in between, or
where the conversation was compacted first. Each of them read all that stood before it. So a response's input tokens are
those of all stretches, as an engine works for each. Usage calls them turns, as the API does. Count nothing else here.
"""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import TypeAlias

import msgspec

from service.api.response import InputTokensDetails, Logprob, OutputTokensDetails, Usage
from service.engine.port import TokenLogprobs, Transcript
from service.grammar.tags import HeaderState
from service.harmony import tokens
from service.harmony.pictures import with_pictures
from service.harmony.render import PROMPT_END
from service.harmony.segments import Segment, Segmenter, SegmenterState
from service.markup.chat import Chat
from service.responses.output.logprobs import pieces_of, shown_logprob
from store.turn import StoredMessage

Read = tuple[list[Segment], Sequence[Logprob]]
"""Segments, and the log probabilities of the tokens that made them, where those are shown."""

Cached = int | list[int | None] | None
"""Of one stretch, or of several; None is not known."""


READ = "read_ids"
"""The role of a note of the ids that a model has sampled of a turn. No text of it outlives that turn's."""


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """So many sampled ids at once, and their text; or, where it has the length of one, the note that a prompt was made,
    which ends inside of reasoning or not. Event logs hold it as this array, as events depend on how the text was cut.
    """

    ids: int
    text: str
    prompt: int | None = None
    thinking: bool = False


Ids: TypeAlias = "array[int]"

DIGEST_BYTES = 16


class Sampled(msgspec.Struct, frozen=True):
    """The `ids` of a turn as a model sampled them, behind a `gap` of so many others: those behind the turn before, or
    from the prompt's beginning. `digest` is the gap's, under `key`.
    """

    gap: int
    digest: bytes
    ids: Ids
    key: bytes = b""


class KnownTurns(msgspec.Struct, frozen=True):
    """The turns that a model has sampled of a conversation, the oldest first. `key` is for the turn behind them."""

    turns: tuple[Sampled, ...] = ()
    key: bytes = b""

    @property
    def length(self) -> int:
        """How many ids the model had by the end of the last of them."""
        return sum([turn.gap + len(turn.ids) for turn in self.turns])


NOTHING = KnownTurns()


class Templated(msgspec.Struct, frozen=True):
    """The ids of a prompt that a template made, and the places in them where turns as they were sampled begin and end.

    `kept` is how many of its first ids are known to be those of the prompt before.
    """

    ids: Ids
    turns: tuple[tuple[int, int], ...] = ()
    kept: int = 0

    def with_turn(self, sampled: Ids) -> "Templated":
        """The prompt, and a turn behind it."""
        begin = len(self.ids)
        turns = (*self.turns, (begin, begin + len(sampled))) if sampled else self.turns
        return Templated(self.ids + sampled, turns)

    def sampled_turns(self, key: bytes, behind: int = 0) -> tuple[Sampled, ...]:
        """Its turns from the place `behind` on, which is its beginning or the end of one of them."""
        turns: list[Sampled] = []
        for begin, end in self.turns:
            if begin >= behind:
                gap = digest_of(self.ids[behind:begin], key)
                turns.append(Sampled(begin - behind, gap, self.ids[begin:end], key))
                behind = end
        return tuple(turns)


def digest_of(ids: Ids, key: bytes) -> bytes:
    """A digest that tells some ids from others, for holders of the key. 100,000 ids take 1 ms."""
    return blake2b(tokens.pack(ids), digest_size=DIGEST_BYTES, key=key).digest()


class Stretch(msgspec.Struct):
    prompt: int
    feedback: int = 0
    told: int = 0
    """The tokens of a tool's answer, which don't count among those that the response may take."""
    cached: int | None = None
    sampled: int = 0
    shown: int = 0
    """The tokens that its pictures take beside their marks."""


_FEEDBACK = attrgetter("feedback")


class Stretches:
    """The stretches of one response, and the usage that they add up to; `input_tokens` is the length of its prompt."""

    def __init__(self, input_tokens: int) -> None:
        self._all = [Stretch(input_tokens)]
        self.prefix_tokens = input_tokens
        """How many ids of the prompt stand before the `tail`: all, until the prompt begins anew."""
        self.tail: array[int] = array("I")
        """The ids behind the prompt by now: all that was sampled and is legal, and the feedback in between."""
        self.sampled = 0
        """How many tokens were sampled."""
        self.reasoning = 0
        """How many of these were reasoning."""
        self.dropped = False
        """Whether the model has said more, since its last prompt, than its messages say."""

    @property
    def last(self) -> int | None:
        """The last id behind the prompt."""
        return self.tail[-1] if self.tail else None

    @property
    def input_tokens(self) -> int:
        """How many tokens stood before the model, in all stretches so far."""
        return sum([each.prompt + each.shown for each in self._all])

    @property
    def length(self) -> int:
        """How many ids the response has taken: the sampled ones, and the feedback in between."""
        return self.sampled + sum(map(_FEEDBACK, self._all))

    @property
    def feedbacks(self) -> int:
        """How often the model got feedback."""
        return sum([each.feedback > 0 for each in self._all])

    @property
    def unknown(self) -> bool:
        """Whether it is not known yet how much of the present stretch's prompt was cached."""
        return self._all[-1].cached is None

    @property
    def begins(self) -> bool:
        """Whether nothing of the present stretch has been sampled yet."""
        return not self._all[-1].sampled

    @property
    def cached(self) -> Cached:
        """How much of each stretch's prompt the engine's prefix cache held, as far as that is known."""
        return self._all[0].cached if len(self._all) == 1 else [each.cached for each in self._all]

    def note_again(self, cached: Cached) -> None:
        """Take `cached` as it was when these stretches, or the first of them, were under way elsewhere."""
        known = cached if isinstance(cached, list) else [cached]
        for stretch, each in zip(self._all, known, strict=False):
            stretch.cached = each if stretch.cached is None else stretch.cached

    def note_cached(self, cached: int) -> None:
        """The engine's prefix cache held so much of the present stretch's prompt. Only the first note counts."""
        if self._all[-1].cached is None:
            self._all[-1].cached = cached

    def add(self, sampled: int) -> None:
        """So many more were sampled."""
        self.sampled += sampled
        self._all[-1].sampled += sampled

    def usage(self, *, by_stretch: bool) -> Usage:
        """The usage of the response, and of each of its stretches where that was asked for."""
        prompts = [each.prompt + each.shown for each in self._all]
        cached = [each.cached or 0 for each in self._all]
        sampled = [each.sampled for each in self._all]
        feedback = [each.feedback + each.told for each in self._all]
        put_in, put_out = InputTokensDetails(sum(cached)), OutputTokensDetails(self.reasoning, sum(feedback))
        if by_stretch:
            put_in.input_tokens_per_turn, put_in.cached_tokens_per_turn = prompts, cached
            put_out.output_tokens_per_turn, put_out.tool_output_tokens_per_turn = sampled, feedback
        return Usage(
            input_tokens=sum(prompts),
            input_tokens_details=put_in,
            output_tokens=self.sampled,
            output_tokens_details=put_out,
            total_tokens=sum(prompts) + self.sampled,
        )


class HarmonyReading(Stretches):
    """Of a model that speaks Harmony."""

    asks_anew = True
    """Whether the engine is asked anew amid a turn: for a content in a format, or as another call may follow."""
    before_text = slice(None)
    """Of the log probabilities that wait where a message opens, those of tokens that are no text of it."""
    ends: Sequence[int] = tokens.ENDS
    """The ids that end the model's turn."""

    def __init__(self, input_tokens: int) -> None:
        super().__init__(input_tokens)
        self.parser = Segmenter()

    def words(self, ids: Sequence[int], text: str) -> list[Segment] | None:
        """Take ids that are words alone, as nearly all chunks are: their segments, at once. None where a mark is among
        them, behind which the engine may have to be asked anew; then nothing is taken.
        """
        if max(ids) >= tokens.FIRST_SPECIAL or min(ids) < 0:
            return None
        self.tail.extend(ids)
        self.add(len(ids))
        return self.parser.feed(ids)

    def read(self, ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs] | None) -> Iterator[Read]:
        """Take ids up to each mark, or with `logprobs` one by one; the segments that they make. Ids that are not asked
        for are not taken.
        """
        place = 0
        while place < len(ids):
            end = tokens.behind_the_next_mark(ids, place) if logprobs is None else place + 1
            piece = ids[place:end]
            self.tail.extend([id for id in piece if 0 <= id <= tokens.LAST_LEGAL])
            self.add(len(piece))
            is_text = 0 <= piece[0] < tokens.FIRST_SPECIAL
            yield self.parser.feed(piece), [shown_logprob(piece[0], logprobs[place])] if logprobs and is_text else ()
            place = end

    def header_state(self, *, called: bool, free: bool) -> HeaderState | None:
        """Where a constraint on headers would begin from here; None where none can. `free` is whether what is open is
        nothing, or no answer.
        """
        state = self.parser.state
        if state is SegmenterState.HEADER:
            return HeaderState.NEXT if self.parser.at_start else None
        if state is SegmenterState.BETWEEN:
            return HeaderState.CALLED if called else HeaderState.BETWEEN
        return HeaderState.INSIDE if free else None

    def give_feedback(self, messages: Sequence[StoredMessage], *, counts: bool = True) -> None:
        """Another stretch begins, behind the last of the messages; `counts` is whether the response has fewer tokens
        left for it.
        """
        self.parser = Segmenter()
        if self.last in (tokens.START, tokens.CHANNEL):
            self.tail.pop()
        if self.last not in (*tokens.ENDS, tokens.END):
            self.tail.append(tokens.CALL)
        given = tokens.unpack(messages[-1].tokens + PROMPT_END)
        self.tail += given
        before = self._all[-1]
        prompt, size = before.prompt + before.sampled + len(given), len(given)
        self._all.append(Stretch(prompt, feedback=size) if counts else Stretch(prompt, told=size))

    def begin_behind(self, messages: Sequence[StoredMessage], answers: int) -> None:
        """The first stretch begins behind these messages, of which so many are answers of tools."""
        self.tail = tokens.unpack(b"".join([message.tokens for message in messages]) + PROMPT_END)
        first = self._all[0]
        first.prompt += len(self.tail)
        first.told = sum([len(message.tokens) for message in messages[:answers]]) // tokens.BYTES_A_TOKEN

    def begin_anew(self, messages: Sequence[StoredMessage], prefix_tokens: int) -> None:
        """Another stretch begins, behind so many ids of the prompt and these messages alone."""
        self.parser = Segmenter()
        self.prefix_tokens = prefix_tokens
        self.tail = tokens.unpack(b"".join([message.tokens for message in messages]) + PROMPT_END)
        self._all.append(Stretch(prefix_tokens + len(self.tail)))


class Before(msgspec.Struct, frozen=True):
    """The model's context: the prompt of the `first` stretch or of a later one, where it is known here, and the tokens
    sampled behind it.
    """

    first: bool
    prompt: Templated | None
    sampled: "array[int]"


class TemplatedReading(Stretches):
    """Of a model with a chat template and a markup of its own. Later prompts are known once they were `prompted`, and
    their ids only where that was.
    """

    asks_anew = False
    before_text = slice(-1)

    def __init__(self, chat: Chat, input_tokens: int) -> None:
        super().__init__(input_tokens)
        self.chat = chat
        self.ends: Sequence[int] = chat.ends
        self.thinking = chat.thinking
        """Whether the last prompt ended inside of reasoning."""
        self.parser = chat.parser(thinking=chat.thinking)
        self._waits = False
        """Whether the present stretch's prompt is still to be made, anywhere."""
        self.before: Before | None = None
        """The model's context in the stretch before, if there was one."""
        self.prompt: Templated | None = None
        """The ids of a later stretch's prompt, where they are known."""
        self._prompting: Sequence[StoredMessage] = ()
        """The response's messages that stand in the present stretch's prompt."""
        self._anew = False

    @property
    def unprompted(self) -> bool:
        """Whether the prompt behind which the model goes on is not known here: its template has to make it."""
        return self._waits or (self.before is not None and self.prompt is None)

    @property
    def transcript(self) -> Transcript:
        """The input from which the template makes the present stretch's prompt."""
        return self.chat.transcript(with_pictures(self._prompting), anew=self._anew)

    def words(self, ids: Sequence[int], text: str) -> list[Segment]:
        """Take ids, and what they say, at once; the segments that they make."""
        self.tail.extend(ids)
        self.add(len(ids))
        return self.parser.feed(ids, text)

    def read(self, ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs] | None) -> Iterator[Read]:
        """The same, each piece with the log probabilities of its tokens."""
        for piece, said, known in pieces_of(ids, text, logprobs or ()):
            yield self.words(piece, said), known

    def give_feedback(self, messages: Sequence[StoredMessage], *, counts: bool = True) -> None:
        """Another stretch begins, behind these messages; see HarmonyReading."""
        self.before = Before(self.before is None, self.prompt, self.tail)
        self.tail = array("I")
        self.prompt, self._waits, self._prompting = None, True, tuple(messages)
        self._all.append(Stretch(0, feedback=int(counts)))

    def begin_behind(self, messages: Sequence[StoredMessage], answers: int) -> None:
        """The first stretch begins behind these messages."""
        self._all.clear()
        self.give_feedback(messages, counts=False)

    def begin_anew(self, messages: Sequence[StoredMessage], prefix_tokens: int) -> None:
        """Another stretch begins, behind these messages alone."""
        self._anew = True
        self.give_feedback(messages, counts=False)

    def prompted(self, length: int, thinking: bool, prompt: Templated | None = None) -> bool:
        """The present stretch's prompt was made, of so many ids that end inside of reasoning or not; `prompt` where it
        was made here. Whether nobody had made it before. Behind that the server tells how many it read, with pictures.
        """
        if prompt is None and not self._waits:
            self._all[-1].shown = length - self.prefix_tokens
            return False
        self.prompt, self.prefix_tokens = prompt, length
        if not self._waits:
            return False
        self._waits, self.thinking, self.dropped = False, thinking, False
        self.parser = self.chat.parser(thinking=thinking)
        self._note_prompt(length)
        return True

    def _note_prompt(self, length: int) -> None:
        """The prompt of the present stretch had so many tokens, where one was before it also what was given since."""
        stretch = self._all[-1]
        stretch.prompt = length
        if len(self._all) == 1:
            return
        before = self._all[-2]
        given = max(1, length - before.prompt - before.sampled)
        if stretch.feedback:
            stretch.feedback = given
        else:
            stretch.told = given


NO_PROMPT = Templated(array("I"))
"""Stands for a prompt that only the server knows."""


class ServedReading(TemplatedReading):
    """Of a model whose server makes the prompts, and reads it by a parser of its own."""

    before_text = slice(0)  # a chunk begins where a segment opens

    def prompted(self, length: int, thinking: bool, prompt: Templated | None = None) -> bool:
        """The present stretch's prompt had so many tokens, as the server tells behind it."""
        if self._waits:
            return super().prompted(length, thinking, NO_PROMPT)
        self._note_prompt(length)
        return False


def reading_of(chat: Chat | None, input_tokens: int) -> HarmonyReading | TemplatedReading:
    """How a response is read whose prompt has so many tokens; `chat` is of a model that doesn't speak Harmony."""
    if chat is None:
        return HarmonyReading(input_tokens)
    return (ServedReading if chat.served else TemplatedReading)(chat, input_tokens)
