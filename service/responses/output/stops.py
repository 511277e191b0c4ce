"""Texts before which an answer ends: what may be the beginning of one waits until that is known.

Only what the caller sees is looked at, so a stop never falls into a thought, and never depends on tokens' bounds.
"""

from collections.abc import Sequence

from service.api.response import Logprob

Piece = tuple[str, Sequence[Logprob]]
"""Some text, and its tokens' log probabilities where they are shown."""


class Stopper:
    """Give it an answer's text piece by piece. Once `hit`, the answer ends."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._pending: list[Piece] = []
        self.hit = False

    def take(self, text: str, logprobs: Sequence[Logprob] = ()) -> list[Piece]:
        """What may be shown by now. What stands before a stop is, the token in which it begins without its rest."""
        self._pending.append((text, logprobs))
        waiting = "".join(piece for piece, _ in self._pending)
        found = [place for stop in self._stops if (place := waiting.find(stop)) >= 0]
        if found:
            self.hit = True
            return self._release(min(found), cut=True)
        return self._release(len(waiting) - self._partial(waiting), cut=False)

    def rest(self) -> list[Piece]:
        """What still waits, as the answer ended otherwise."""
        pieces, self._pending = self._pending, []
        return pieces

    def _partial(self, waiting: str) -> int:
        """How many characters at the end may be the beginning of a stop."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(waiting)), longest, -1):
                if waiting.endswith(stop[:size]):
                    longest = size
                    break
        return longest

    def _release(self, chars: int, *, cut: bool) -> list[Piece]:
        """The waiting pieces up to so many characters; one that goes beyond waits on, unless it is to be cut."""
        out: list[Piece] = []
        while self._pending and len(self._pending[0][0]) <= chars:
            out.append(self._pending.pop(0))
            chars -= len(out[-1][0])
        if cut and chars:
            out.append((self._pending[0][0][:chars], ()))
        return out
