"""The events of an SGLang server's stream. Pure.

Each has all ids so far, unless the server was started with --incremental-streaming-output: then each has the new ones.
`completion_tokens` tells which it is, as it counts all that there are. A list of all is the server's own, and may have
grown behind the count: what is beyond comes again, counted.
"""

from collections.abc import Callable
from typing import TypeVar

from service.engine.port import LEAST_LOGPROB, EngineError, TokenLogprobs
from service.engine.servers.answer import Answer
from service.engine.sglang import wire

MANY = 2_000
"""So many ids that come again with each new one are worth a word in the log."""

_T = TypeVar("_T")


class SglangAnswer(Answer):
    """A stream. `on_repeated` is called where a long list of ids comes again with each new one."""

    name = wire.NAME

    def __init__(self, *, logprobs: int | None, on_repeated: Callable[[], None]) -> None:
        super().__init__(logprobs=logprobs)
        self._on_repeated = on_repeated
        self._count = 0
        """How many ids were taken."""

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if self.finished:
            return
        if event.meta_info is None or event.meta_info.completion_tokens is None:
            raise EngineError("the SGLang server sent an event that doesn't say how many tokens there are")
        meta, count = event.meta_info, event.meta_info.completion_tokens
        reason = meta.finish_reason
        if reason is not None and reason.type == "abort" and not self.ending:
            raise wire.aborted(reason)
        if reason is not None and isinstance(reason.matched, str):  # we give it no texts to stop at
            raise EngineError(f"the SGLang server stopped for {reason.matched[:100]!r}; its log says why")
        if meta.cached_tokens is not None:
            self._cached_tokens = meta.cached_tokens
        if count > self._count:
            self._add(event.output_ids, meta, count)
        if reason is not None:
            self._finish_as(reason.type)

    def _add(self, ids: list[int], meta: wire.Meta, count: int) -> None:
        """Take the ids of an event behind those that are known. `count` is how many there are with them."""
        new = self._new(ids, count)
        if len(new) != count - self._count:
            raise EngineError("the SGLang server sent fewer tokens than it says")
        if self._alternatives is not None:
            given = self._new(meta.output_token_logprobs or [], count)
            tops = self._new(meta.output_top_logprobs or [None] * len(ids), count)
            if [each.id for each in given] != new or len(tops) != len(new):
                raise EngineError("the SGLang server sent tokens without their log probabilities")
            self._logprobs += [
                _read(each, top or [], self._alternatives) for each, top in zip(given, tops, strict=True)
            ]
        if self._count and len(ids) > max(len(new), MANY):
            self._on_repeated()
        self._tokens += new
        self._count = count

    def _new(self, values: list[_T], count: int) -> list[_T]:
        """What of an event's list is new: what is behind the known ones if it has all, else the whole."""
        return values[self._count : count] if len(values) >= count else values


def _read(given: wire.Logprob, top: list[wire.Logprob], most: int) -> TokenLogprobs:
    likeliest = sorted(((each.id, _finite(each.logprob)) for each in top), key=lambda each: -each[1])
    return TokenLogprobs(_finite(given.logprob), tuple(likeliest[:most]))


def _finite(logprob: float | None) -> float:
    return LEAST_LOGPROB if logprob is None else max(logprob, LEAST_LOGPROB)
