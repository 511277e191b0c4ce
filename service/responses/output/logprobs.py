"""Log probabilities of sampled tokens as the API shows them: with each token's text and its own bytes.

A token may be but a piece of a character. Its bytes are that piece, so that those of all tokens together are the text;
its text has U+FFFD in the piece's place. A mark of the format has a name and no bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from service.api import events
from service.api.response import Logprob, TopLogprob
from service.engine.port import LEAST_LOGPROB, UNTOLD, TokenLogprobs
from service.harmony import tokens


def pieces_of(
    ids: Sequence[int], text: str, logprobs: Sequence[TokenLogprobs]
) -> Iterator[tuple[Sequence[int], str, list[Logprob]]]:
    """The text of a model that doesn't speak Harmony, token by token: ids, their text, and the log probabilities shown.
    Tokens that are only parts of a character stay together.
    """
    shown = [shown_logprob(id, each) for id, each in zip(ids, logprobs, strict=True)]
    if "".join(each.token for each in shown) != text:
        yield ids, text, [each for each, given in zip(shown, logprobs, strict=True) if given != UNTOLD]
        return
    for place, each in enumerate(shown):
        yield ids[place : place + 1], each.token, [each] if logprobs[place] != UNTOLD else []


def shown_logprob(token: int, sampled: TokenLogprobs) -> Logprob:
    """The token's log probability, with those of the likeliest tokens there."""
    if sampled.texts:
        text, *others = sampled.texts
        top = [
            TopLogprob(other, _finite(each), list(other.encode()))
            for other, (_, each) in zip(others, sampled.top, strict=False)
        ]
        return Logprob(text, _finite(sampled.logprob), list(text.encode()), top)
    top = [TopLogprob(_token(other)[0], _finite(each), _token(other)[1]) for other, each in sampled.top]
    text, raw = _token(token)
    return Logprob(text, _finite(sampled.logprob), raw, top)


def without_bytes(logprobs: Iterable[Logprob]) -> tuple[events.StreamedLogprob, ...]:
    """The same as events have it."""
    return tuple(
        events.StreamedLogprob(
            each.token,
            each.logprob,
            tuple(events.StreamedTopLogprob(top.token, top.logprob) for top in each.top_logprobs),
        )
        for each in logprobs
    )


def _finite(logprob: float) -> float:
    return min(logprob, 0.0) if logprob > LEAST_LOGPROB else LEAST_LOGPROB


@lru_cache(maxsize=16_384)  # some 5 MB
def _token(token: int) -> tuple[str, list[int]]:
    """A token's text and its bytes; ids that don't exist have a name too."""
    if 0 <= token <= tokens.LAST_ORDINARY:
        piece = tokens.byte_table()[token]
        return piece.decode("utf-8", "replace"), list(piece)
    return tokens.mark_of(token) or f"<|reserved_{token}|>", []
