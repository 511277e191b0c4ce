"""The turns of one response, and what they come to as its usage.

A turn is what was sampled without a break: a response has several where a tool's word came in between, or where it was
compacted first. Each of them read all that stood before it. So a response's input tokens are those of all turns, as an engine works for each.
"""

import msgspec

from service.protocol.response import InputTokensDetails, OutputTokensDetails, Usage


class _Turn(msgspec.Struct):
    prompt: int
    told: int = 0
    cached: int | None = None
    sampled: int = 0


class Turns:
    """The counts of one response; `input_tokens` is the length of its prompt."""

    def __init__(self, input_tokens: int) -> None:
        self._turns = [_Turn(input_tokens)]

    @property
    def sampled(self) -> int:
        """How many tokens were sampled."""
        return sum([turn.sampled for turn in self._turns])

    @property
    def told(self) -> int:
        """How many tokens were told in between."""
        return sum([turn.told for turn in self._turns])

    @property
    def cached(self) -> int | None:
        """How much of the present turn's prompt the engine's prefix cache held, once that is known."""
        return self._turns[-1].cached

    def add(self, sampled: int) -> None:
        """So many more were sampled."""
        self._turns[-1].sampled += sampled

    def note_cached(self, cached: int) -> None:
        """The engine's prefix cache held so much of the present turn's prompt. Only its first word on it counts."""
        if self._turns[-1].cached is None:
            self._turns[-1].cached = cached

    def next(self, *, told: int) -> None:
        """Another turn begins, behind so many tokens that the model was told."""
        before = self._turns[-1]
        self._turns.append(_Turn(before.prompt + before.sampled + told, told))

    def anew(self, prompt: int) -> None:
        """Another turn begins, behind another prompt of so many tokens."""
        self._turns.append(_Turn(prompt))

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
