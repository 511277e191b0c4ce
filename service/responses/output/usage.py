"""The stretches of one response: the model's context at each, and the usage that they add up to.

A stretch is a run of tokens sampled without a break: a response has several where the model got feedback in between, or
where the conversation was compacted first. Each of them read all that stood before it. So a response's input tokens are
those of all stretches, as an engine works for each. Usage calls them turns, as the API does. Count nothing else here.
"""

from array import array
from collections.abc import Sequence

import msgspec

from service.api.response import InputTokensDetails, OutputTokensDetails, Usage
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from service.markup.prompts import Templated
from store.turn import StoredMessage

Cached = int | list[int | None] | None
"""Of one stretch, or of several; None is not known."""


class _Stretch(msgspec.Struct):
    prompt: int
    feedback: int = 0
    told: int = 0
    """The tokens of a tool's answer, which don't count among those that the response may take."""
    cached: int | None = None
    sampled: int = 0


class Before(msgspec.Struct, frozen=True):
    """The model's context: the prompt of the `first` stretch or of a later one, where it is known here, and the tokens
    sampled behind it.
    """

    first: bool
    prompt: Templated | None
    sampled: "array[int]"


class Stretches:
    """The stretches of one response; `input_tokens` is the length of its prompt.

    A `templated` one's later prompts are made by its model's chat template, anew each time: they are known once they
    were `prompted`, and their ids only here.
    """

    def __init__(self, input_tokens: int, *, templated: bool = False) -> None:
        self._all = [_Stretch(input_tokens)]
        self._templated = templated
        self.waits = False
        """Whether the present stretch's prompt is still to be made, anywhere."""
        self._later = False
        self.before: Before | None = None
        """The model's context in the stretch before one that is templated."""
        self.prompt: Templated | None = None
        """Of a later stretch that is templated, the ids of its prompt, where they are known."""
        self.prefix_tokens = input_tokens
        """How many ids of the prompt stand before the `tail`: all, until the prompt begins anew."""
        self.tail: array[int] = array("I")
        """The ids behind the prompt by now: all that was sampled and is legal, and the feedback in between."""
        self.sampled = 0
        """How many tokens were sampled."""
        self.reasoning = 0
        """How many of these were reasoning."""

    @property
    def last(self) -> int | None:
        """The last id behind the prompt."""
        return self.tail[-1] if self.tail else None

    @property
    def input_tokens(self) -> int:
        """How many tokens stood before the model, in all stretches so far."""
        return sum([each.prompt for each in self._all])

    @property
    def length(self) -> int:
        """How many ids the response has taken: the sampled ones, and the feedback in between."""
        return self.sampled + sum([each.feedback for each in self._all])

    @property
    def feedbacks(self) -> int:
        """How often the model got feedback."""
        return sum([each.feedback > 0 for each in self._all])

    @property
    def later(self) -> bool:
        """Whether the present stretch's prompt isn't that of the beginning."""
        return self._later

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

    def note_prompt(self, length: int) -> None:
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

    def add(self, sampled: int) -> None:
        """So many more were sampled."""
        self.sampled += sampled
        self._all[-1].sampled += sampled

    def give_feedback(self, message: StoredMessage, *, counts: bool = True) -> None:
        """Another stretch begins, behind a message to the model; `counts` is whether the response has fewer tokens left
        for it.
        """
        if self._templated:
            self._wait(_Stretch(0, feedback=int(counts)))
            return
        if self.last in (tokens.START, tokens.CHANNEL):
            self.tail.pop()
        if self.last not in (*tokens.ENDS, tokens.END):
            self.tail.append(tokens.CALL)
        given = tokens.unpack(message.tokens + PROMPT_END)
        self.tail += given
        before = self._all[-1]
        stretch = _Stretch(before.prompt + before.sampled + len(given))
        if counts:
            stretch.feedback = len(given)
        else:
            stretch.told = len(given)
        self._all.append(stretch)

    def begin_behind(self, answers: Sequence[StoredMessage], newest: Sequence[StoredMessage]) -> None:
        """The first stretch begins behind the answers of tools, and what the caller says besides, too."""
        if self._templated:
            self._wait(self._all.pop())
            return
        self.tail = tokens.unpack(b"".join([message.tokens for message in (*answers, *newest)]) + PROMPT_END)
        first = self._all[0]
        first.prompt += len(self.tail)
        first.told = sum([len(message.tokens) for message in answers]) // tokens.BYTES_A_TOKEN

    def begin_anew(self, prefix_tokens: int, messages: Sequence[StoredMessage]) -> None:
        """Another stretch begins, behind so many ids of the prompt and these messages alone."""
        if self._templated:
            self._wait(_Stretch(0))
            return
        self.prefix_tokens = prefix_tokens
        self.tail = tokens.unpack(b"".join([message.tokens for message in messages]) + PROMPT_END)
        self._all.append(_Stretch(prefix_tokens + len(self.tail)))

    def _wait(self, stretch: _Stretch) -> None:
        self.before = Before(not self.later, self.prompt, self.tail)
        self.tail = array("I")
        self.prompt, self.waits, self._later = None, True, True
        self._all.append(stretch)

    def prompted(self, length: int, prompt: Templated | None) -> None:
        """The template has made the present stretch's prompt, of so many ids; here or elsewhere."""
        self.prompt, self.prefix_tokens = prompt, length
        if not self.waits:
            return
        self.waits = False
        self.note_prompt(length)

    def usage(self, *, by_stretch: bool) -> Usage:
        """The usage of the response, and of each of its stretches where that was asked for."""
        prompts = [each.prompt for each in self._all]
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
