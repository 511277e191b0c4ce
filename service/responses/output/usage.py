"""The stretches of one response: the model's context at each, and the usage that they add up to.

A stretch is a run of tokens sampled without a break: a response has several where the model got feedback in between, or
where the conversation was compacted first. Each of them read all that stood before it. So a response's input tokens are
those of all stretches, as an engine works for each. Usage calls them turns, as the API does. Count nothing else here.
"""

from array import array

import msgspec

from service.api.response import InputTokensDetails, OutputTokensDetails, Usage

Cached = int | list[int | None] | None
"""Of one stretch, or of several; None is not known."""


class Stretch(msgspec.Struct):
    prompt: int
    feedback: int = 0
    told: int = 0
    """The tokens of a tool's answer, which don't count among those that the response may take."""
    cached: int | None = None
    sampled: int = 0


class Stretches:
    """The stretches of one response; `input_tokens` is the length of its prompt. How each of them begins, and how its
    tokens are read, is in reading.py.
    """

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
