"""The turns of one response: what stands before the model at each, and what they come to as its usage.

A turn is what was sampled without a break: a response has several where a tool's word came in between, or where the
conversation was compacted first. Each of them read all that stood before it. So a response's input tokens are those of
all turns, as an engine works for each.
"""

from array import array
from collections.abc import Sequence

import msgspec

from service.api.response import InputTokensDetails, OutputTokensDetails, Usage
from service.harmony import tokens
from service.harmony.render import PROMPT_END
from store.turn import StoredMessage

Cached = int | list[int | None] | None
"""Of one turn, or of several; None is not known."""


class _Turn(msgspec.Struct):
    prompt: int
    told: int = 0
    cached: int | None = None
    sampled: int = 0


class Turns:
    """The turns of one response; `input_tokens` is the length of its prompt."""

    def __init__(self, input_tokens: int) -> None:
        self._turns = [_Turn(input_tokens)]
        self.opening = input_tokens
        """How many ids of the prompt stand before the `tail`: all, until the prompt begins anew."""
        self.tail: array[int] = array("I")
        """The ids behind the prompt by now: all that was sampled and is legal, and what was told in between."""

    @property
    def last(self) -> int | None:
        """The last id behind the prompt."""
        return self.tail[-1] if self.tail else None

    @property
    def length(self) -> int:
        """How many ids the response has taken: what was sampled, and what was told in between."""
        return self.sampled + self.told

    @property
    def unknown(self) -> bool:
        """Whether it is not known yet how much of the present turn's prompt was cached."""
        return self._turns[-1].cached is None

    @property
    def begins(self) -> bool:
        """Whether nothing of the present turn has been sampled yet."""
        return not self._turns[-1].sampled

    @property
    def sampled(self) -> int:
        """How many tokens were sampled."""
        return sum([turn.sampled for turn in self._turns])

    @property
    def told(self) -> int:
        """How many tokens were told in between."""
        return sum([turn.told for turn in self._turns])

    @property
    def cached(self) -> Cached:
        """How much of each turn's prompt the engine's prefix cache held, as far as that is known."""
        return self._turns[0].cached if len(self._turns) == 1 else [turn.cached for turn in self._turns]

    def note_again(self, cached: Cached) -> None:
        """What `cached` was when these turns, or the first of them, were under way elsewhere."""
        known = cached if isinstance(cached, list) else [cached]
        for turn, each in zip(self._turns, known, strict=False):
            turn.cached = each if turn.cached is None else turn.cached

    def add(self, sampled: int) -> None:
        """So many more were sampled."""
        self._turns[-1].sampled += sampled

    def note_cached(self, cached: int) -> None:
        """The engine's prefix cache held so much of the present turn's prompt. Only its first word on it counts."""
        if self._turns[-1].cached is None:
            self._turns[-1].cached = cached

    def tell(self, message: StoredMessage) -> None:
        """Another turn begins, behind a message that the model is told."""
        if self.last in (tokens.START, tokens.CHANNEL):
            self.tail.pop()
        if self.last not in (*tokens.ENDS, tokens.END):
            self.tail.append(tokens.CALL)
        word = tokens.unpack(message.tokens + PROMPT_END)
        self.tail += word
        before = self._turns[-1]
        self._turns.append(_Turn(before.prompt + before.sampled + len(word), len(word)))

    def anew(self, opening: int, messages: Sequence[StoredMessage]) -> None:
        """Another turn begins, behind so many ids of the prompt and these messages alone."""
        self.opening = opening
        self.tail = tokens.unpack(b"".join([message.tokens for message in messages]) + PROMPT_END)
        self._turns.append(_Turn(opening + len(self.tail)))

    def usage(self, reasoning: int) -> Usage:
        """What the response took; `reasoning` is how many of the sampled tokens were."""
        prompts = [turn.prompt for turn in self._turns]
        cached = [turn.cached or 0 for turn in self._turns]
        sampled = [turn.sampled for turn in self._turns]
        told = [turn.told for turn in self._turns]
        return Usage(
            input_tokens=sum(prompts),
            input_tokens_details=InputTokensDetails(sum(cached), 0, prompts, cached),
            output_tokens=sum(sampled),
            output_tokens_details=OutputTokensDetails(reasoning, sum(told), sampled, told),
            total_tokens=sum(prompts) + sum(sampled),
        )
