"""Texts before which an answer ends: what may be the beginning of one is held back until it is known.

Only what the caller sees is looked at, so a stop never falls into a thought, and never depends on tokens' bounds.
"""

from collections.abc import Sequence

from service.api.response import Logprob

Piece = tuple[str, Sequence[Logprob]]
"""Some text, and its tokens' log probabilities where they are shown."""


class Stopper:
    """Give it an answer's text piece by piece. Once `hit`, the answer is over."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held: list[Piece] = []
        self.hit = False

    def take(self, text: str, logprobs: Sequence[Logprob] = ()) -> list[Piece]:
        """What may be shown by now. What stands before a stop is, the token in which it begins without its rest."""
        self._held.append((text, logprobs))
        held = "".join(piece for piece, _ in self._held)
        found = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        if found:
            self.hit = True
            return self._release(min(found), cut=True)
        return self._release(len(held) - self._partial(held), cut=False)

    def rest(self) -> list[Piece]:
        """What was held back, as the answer ended otherwise."""
        pieces, self._held = self._held, []
        return pieces

    def _partial(self, held: str) -> int:
        """How many characters at the end may be the beginning of a stop."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(held)), longest, -1):
                if held.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _release(self, chars: int, *, cut: bool) -> list[Piece]:
        """The held pieces up to so many characters; one that goes beyond waits whole, unless it is to be cut."""
        out: list[Piece] = []
        while self._held and len(self._held[0][0]) <= chars:
            out.append(self._held.pop(0))
            chars -= len(out[-1][0])
        if cut and chars:
            out.append((self._held[0][0][:chars], ()))
        return out
