"""What a load came to, in figures. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Outcome(NamedTuple):
    """What became of one request: seconds until its first token, None where none came, the tokens of its output, and
    the error that it ended with, '' for none.
    """

    first_seconds: float | None = None
    tokens: int = 0
    error: str = ""


@dataclass(frozen=True)
class Figures:
    """What a load came to. Milliseconds are None where nothing was measured; errors are counted by what they are."""

    responses: int
    seconds: float
    responses_per_second: float
    tokens_per_second: float
    first_token_ms_p50: float | None
    first_token_ms_p99: float | None
    errors: dict[str, int]

    def lines(self) -> list[str]:
        """For people."""
        failed = ", ".join(f"{error}: {count}" for error, count in self.errors.items())
        return [
            f"responses    {self.responses} in {self.seconds:.1f} s",
            f"first token  p50 {_shown(self.first_token_ms_p50)}, p99 {_shown(self.first_token_ms_p99)}",
            f"responses/s  {self.responses_per_second:.1f}",
            f"tokens/s     {self.tokens_per_second:.1f}",
            f"errors       {failed or 'none'}",
        ]


def figures_of(outcomes: Sequence[Outcome], seconds: float) -> Figures:
    """The figures of what was made in so many seconds."""
    made = [outcome for outcome in outcomes if not outcome.error]
    firsts = sorted(outcome.first_seconds for outcome in made if outcome.first_seconds is not None)
    per_second = 1 / seconds if seconds > 0 else 0.0
    return Figures(
        responses=len(made),
        seconds=round(seconds, 3),
        responses_per_second=round(len(made) * per_second, 3),
        tokens_per_second=round(sum(outcome.tokens for outcome in made) * per_second, 3),
        first_token_ms_p50=_percentile(firsts, 50),
        first_token_ms_p99=_percentile(firsts, 99),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error).most_common()),
    )


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The nearest rank, in milliseconds: what so many percent don't exceed."""
    return round(ordered[math.ceil(len(ordered) * percent / 100) - 1] * 1000, 3) if ordered else None


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.0f} ms"
