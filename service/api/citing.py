"""The port of citations: what finds those of an answer. Tools bring it (service/features/browser/citing.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from service.api.response import Logprob


class Cited(NamedTuple):
    """A piece of text as the client sees it, with its log probabilities, and the annotation behind it."""

    text: str
    beside: Sequence[Logprob] = ()
    annotation: dict[str, Any] | None = None


class Citing(Protocol):
    """Finds the citations of one answer, piece by piece."""

    def take(self, text: str, beside: Sequence[Logprob] = ()) -> Sequence[Cited]:
        """Take more text, and the log probabilities of its tokens; the pieces that can be shown by now."""
        ...

    def rest(self) -> Sequence[Cited]:
        """The pieces that are left when no more text comes."""
        ...


Cite = Callable[[Sequence[Mapping[str, Any]], Sequence[Any]], Citing | None]
"""The finder of an answer's citations: of the outcomes before it (`Outcome.cites`), and of what tools have displayed by
then. None where nothing can be cited.
"""


def cite_nothing(cites: Sequence[Mapping[str, Any]], displays: Sequence[Any]) -> Citing | None:
    return None
