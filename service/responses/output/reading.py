"""The port of a model's way to speak: how each stretch of a response is prompted, and how its tokens are read.

Harmony's is here, where the ids are all there is, and feedback stands behind them in the same prompt; of models with a
chat template the feature has others. The machine takes the segments, which are the same for all.

A stretch is a run of tokens sampled without a break: a response has several where the model got feedback in between, or
where the conversation was compacted first. Each of them read all that stood before it. So a response's input tokens are
those of all stretches, as an engine works for each. Usage calls them turns, as the API does. Count nothing else here.
"""

from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from hashlib import blake2b
from typing import ClassVar, TypeAlias, cast

import msgspec

from service.api.response import InputTokensDetails, Logprob, OutputTokensDetails, Usage
from service.engine.port import Generation, Sampling, TokenLogprobs, Transcript
from service.grammar.tags import HeaderState, addressing_tag, content_tag
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from service.harmony.segments import Segment, Segmenter, SegmenterState
from service.responses.output.logprobs import shown_logprob
from service.responses.output.rules import Rules, Spoken
from store.turn import StoredMessage

Read = tuple[list[Segment], Sequence[Logprob]]
"""Segments, and the log probabilities of the tokens that made them, where those are shown."""

Cached = int | list[int | None] | None
"""Of one stretch, or of several; None is not known."""


READ = "read_ids"
"""The role of a note of the ids that a model has sampled of a turn. No text of it outlives that turn's."""


PREFIX = "prompt_prefix"
"""The role of a note of the ids that stand before a conversation in its prompts, from its turn on."""

SAMPLED = "sampled"
"""The role of a note of a turn's sampled ids. No digest of them outlives the turn's text."""


class SampledNote(msgspec.Struct, array_like=True, frozen=True):
    """The digest of all ids that a response sampled, as little-endian i64, and their log probabilities as little-endian
    f32, where the engine told all of them.
    """

    digest: bytes
    logprobs: bytes = b""


RenderPrompt = Callable[[Transcript, str], Awaitable[Sequence[int]]]
"""The ids that the template of a model makes of a prompt. Raises EngineError."""


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


NO_PROMPT = Templated(array("I"))
"""Stands for a prompt that only the server knows."""


class ResumePoint(msgspec.Struct, frozen=True):
    """Where a response stands as its engine is asked: the format of the `content` that is open, where that is to match
    one; whether a tool was `called`; and whether what is open is nothing, or no answer.
    """

    content: str | None
    called: bool
    free: bool


class Reading:
    """How one response is prompted and read, its stretches so far, and the usage that they add up to; `input_tokens` is
    the length of its prompt. As it stands: of a model that speaks Harmony, whose ids tell all, and whose prompts are
    known.
    """

    asks_anew = True
    """Whether the engine is asked anew amid a turn: for a content in a format, or as another call may follow."""
    before_text = slice(None)
    """Of the log probabilities that wait where a message opens, those of tokens that are no text of it."""
    ends: Sequence[int] = tokens.ENDS
    """The ids that end the model's turn."""
    by_text = False
    """Whether its events depend on the texts of chunks, which logs then keep."""
    unprompted = False
    """Whether the prompt behind which the model goes on is not known here: it has to be made."""
    at_once = False
    """Whether only the generation under way can go on in the middle of a turn."""
    shown = b""
    """The messages of a prompt as a template gets them, of a model that is shown their pictures; else empty."""

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
        self.segmenter = Segmenter()

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
        return self.sampled + sum([each.feedback for each in self._all])

    @property
    def feedbacks(self) -> int:
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
        self.sampled += sampled
        self._all[-1].sampled += sampled

    def behind(self, prompt: Sequence[int]) -> Sequence[int]:
        """The ids of a prompt that stand before the tail, and the tail."""
        prompt = prompt if len(prompt) <= self.prefix_tokens else prompt[: self.prefix_tokens]
        return array("I", prompt) + self.tail if self.tail else prompt

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

    def words(self, ids: Sequence[int], text: str) -> list[Segment] | None:
        """Take ids that are words alone, as nearly all chunks are: their segments, at once. None where a mark is among
        them, behind which the engine may have to be asked anew; then nothing is taken.
        """
        if max(ids) >= tokens.FIRST_SPECIAL or min(ids) < 0:
            return None
        self.tail.extend(ids)
        self.add(len(ids))
        return self.segmenter.feed(ids)

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
            yield self.segmenter.feed(piece), [shown_logprob(piece[0], logprobs[place])] if logprobs and is_text else ()
            place = end

    def end(self) -> list[Segment]:
        """Nothing more comes; the last segments."""
        return self.segmenter.end()

    def give_feedback(self, messages: Sequence[StoredMessage], *, counts: bool = True) -> None:
        """Another stretch begins, behind the last of the messages; `counts` is whether the response has fewer tokens
        left for it.
        """
        self.segmenter = Segmenter()
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
        self.segmenter = Segmenter()
        self.prefix_tokens = prefix_tokens
        self.tail = tokens.unpack(b"".join([message.tokens for message in messages]) + PROMPT_END)
        self._all.append(Stretch(prefix_tokens + len(self.tail)))

    def next_generation(self, initial: Generation, rules: Rules, place: ResumePoint) -> Generation:
        """The request to the engine that goes on from here; `initial` is that at the beginning, for as many tokens as
        are left.
        """
        sampling = self._constrain(initial.sampling, rules, place)
        return msgspec.structs.replace(initial, prompt=self.behind(initial.prompt), sampling=sampling)

    def _constrain(self, sampling: Sampling, rules: Rules, place: ResumePoint) -> Sampling:
        """The sampling with the model's constraint here: its content's format, or the recipients that it may address.

        Where nothing does, a call doesn't end the generation if another one may follow. Behind a tag it does: an engine
        knows only ends there, and lets the mark of a call through as one. Nothing can follow a complete form, so no
        least number of tokens holds there.
        """
        if place.content is not None:
            return msgspec.structs.replace(sampling, structural_tag=content_tag(place.content), min_tokens=0)
        state = self._header_state(place)
        tag = None if state is None else header_tag(rules, state)
        if tag is not None:
            return msgspec.structs.replace(sampling, structural_tag=tag, min_tokens=0)
        if state is None or rules.parallel == 1 or not rules.callable:
            return sampling
        stops = tuple(stop for stop in sampling.stop_ids if stop != tokens.CALL)
        return msgspec.structs.replace(sampling, stop_ids=stops)

    def _header_state(self, place: ResumePoint) -> HeaderState | None:
        """Where a constraint on headers would begin from here; None where none can."""
        state = self.segmenter.state
        if state is SegmenterState.HEADER:
            return HeaderState.NEXT if self.segmenter.at_start else None
        if state is SegmenterState.BETWEEN:
            return HeaderState.CALLED if place.called else HeaderState.BETWEEN
        return HeaderState.INSIDE if place.free else None

    async def make_prompt(self, render: RenderPrompt, initial: Generation) -> Templated:
        """The prompt behind which the model goes on, where it is `unprompted`. Raises EngineError."""
        raise NotImplementedError

    def take_prompt(self, prompt: Templated) -> Piece | None:
        """The prompt was made; the note of it for logs, if nobody had made it before."""
        raise NotImplementedError

    def prompted(self, length: int, thinking: bool) -> None:
        """The present stretch's prompt was made elsewhere, of so many ids that end inside of reasoning or not. Behind
        that a server tells how many it read, with pictures.
        """
        raise NotImplementedError

    def note(self, initial: Generation) -> list[StoredMessage]:
        """The note of what was read and sampled, for later prompts; none where their messages say it all."""
        return []


def header_tag(rules: Rules, state: HeaderState) -> str | None:
    """The structural tag of whom the model may address from here on, None where nothing is constrained."""
    final = rules.choice != "required" or not rules.callable
    if final and rules.answer is None and rules.allowed is None and (rules.choice == "auto" or not rules.callees):
        return None
    able = [each for each in rules.callable if state is not HeaderState.CALLED or each.awaits]
    trained = tuple(each.recipient for each in able if each.trained)
    typed = tuple(each.recipient for each in able if each.takes_json and not each.trained)
    plain = tuple(each.recipient for each in able if not each.takes_json and not each.trained)
    return addressing_tag(typed, plain, final, state, trained)


class Speaking(Spoken):
    """How the model of one response speaks, as plain data: what its `reading` needs. As it stands: Harmony."""

    ends: tuple[int, ...] = tokens.ENDS
    """The ids that end the model's turn."""
    decoded: ClassVar[bool] = False
    """Whether the engine has to say what the ids say."""
    about = 0
    """About how many tokens the prompt has, where only the server makes it."""

    @property
    def spelled(self) -> tuple[str, ...]:
        """The marks that the engine then has to spell out."""
        return ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 0

    def reading(self, input_tokens: int) -> Reading:
        """The reading of the response, whose prompt has so many tokens."""
        return Reading(input_tokens)

    def name_of(self, recipient: str) -> str:
        """The name by which the model knows the tool whose calls have this recipient."""
        return recipient


_HARMONY = Speaking()


def speaking_in(rules: Rules) -> Speaking:
    """How the model speaks that a response with these rules is of."""
    return _HARMONY if rules.chat is None else cast(Speaking, rules.chat)
