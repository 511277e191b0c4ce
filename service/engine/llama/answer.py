"""The events of a llama.cpp server's stream. Pure.

Each has a token, but where a character is spread over several: the server holds a text back until it is whole, and then
sends it with the last id alone; how many were sampled, it counts on (tools/server, `process_token`). The earlier ones
follow from their bytes: as many entries of the vocabulary as are missing, one after the other. Nothing is known of
their probabilities.
"""

from collections.abc import Iterator, Sequence
from functools import cache

from service.engine.llama import wire
from service.engine.port import LEAST_LOGPROB, EngineError, TokenLogprobs
from service.engine.servers.answer import Answer
from service.harmony.tokens import byte_table, vocabulary

REPLACEMENT = "\ufffd"
"""What stands for bytes that are no character, ever: which they were can't be known."""

_ENDS = {"eos": "stop", "limit": "length"}

MAX_MISSING = 16
"""The most ids that may be missing at once: a character has 4 bytes, and what a grammar holds back is no longer."""


class LlamaAnswer(Answer):
    """A stream."""

    name = wire.NAME

    def __init__(self, *, logprobs: int | None, stop_ids: tuple[int, ...], decoded: bool = False) -> None:
        super().__init__(logprobs=logprobs, decoded=decoded)
        self._stop_ids = stop_ids
        self._count = 0
        """How many ids were sampled."""

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if self.finished:
            return
        if event.timings is not None and event.timings.cache_n is not None:
            self._cached_tokens = event.timings.cache_n
        if event.tokens:
            self._add(event)
        if event.stop:
            self._finish_as(_ENDS.get(event.stop_type, event.stop_type))
        elif event.tokens and event.tokens[-1] in self._stop_ids:
            self._finish_as("stop")
            self.over = True  # the server itself ends at the model's own alone

    def _add(self, event: wire.Event) -> None:
        missing, self._count = event.tokens_predicted - self._count - len(event.tokens), event.tokens_predicted
        found: list[int] = []
        if self._decoded:
            self._text.append(event.content)
            if missing > 0:
                self.lost.append((len(self._tokens), event.content))
        elif missing > 0:
            if REPLACEMENT in event.content or len(event.tokens) > 1:
                raise EngineError("the llama.cpp server left out ids that its text doesn't tell")
            try:
                found = missing_ids(event.content.encode(), event.tokens[0], missing)
            except ValueError as error:
                raise EngineError("the llama.cpp server left out ids that its text doesn't tell") from error
        self._tokens += [*found, *event.tokens]
        if self._alternatives is not None:
            if len(event.completion_probabilities) != len(event.tokens):
                raise EngineError("the llama.cpp server sent tokens without their log probabilities")
            self._logprobs += [TokenLogprobs(LEAST_LOGPROB)] * len(found)
            self._logprobs += [self._read(each, self._alternatives) for each in event.completion_probabilities]

    def _read(self, given: wire.Probability, most: int) -> TokenLogprobs:
        top = given.top_logprobs[:most]
        texts = (given.token, *(each.token for each in top)) if self._decoded else ()
        return TokenLogprobs(_finite(given.logprob), tuple((each.id, _finite(each.logprob)) for each in top), texts)


def _finite(logprob: float | None) -> float:
    return LEAST_LOGPROB if logprob is None else max(logprob, LEAST_LOGPROB)


def missing_ids(content: bytes, last: int, count: int) -> list[int]:
    """The `count` ids before `last`, whose bytes together are `content`. Raises ValueError where there are none such.

    Where bytes can be cut in several ways, the one with the longest beginning is taken. Some characters of four bytes
    can, as 128 from U+1F000 to U+1FFFF.
    """
    end = byte_table()[last]
    if count > MAX_MISSING or not end or not content.endswith(end):
        raise ValueError("the text has other bytes than its ids")
    found = next(_cut(content[: len(content) - len(end)], count), None)
    if found is None:
        raise ValueError("no ids have these bytes")
    return list(found)


def _cut(text: bytes, count: int) -> Iterator[Sequence[int]]:
    """The ways to write `text` as so many ids, those with a long beginning first."""
    if count == 0:
        if not text:
            yield ()
        return
    for length in range(len(text) - count + 1, 0, -1):
        first = parts().get(text[:length])
        if first is not None:
            for rest in _cut(text[length:], count - 1):
                yield (first, *rest)


@cache
def parts() -> dict[bytes, int]:
    """The ordinary ids by their bytes, those that begin or end amid a character: no others are ever missing. Made once,
    0.1 s: call it before anybody waits.
    """
    return {word: id for id, word in enumerate(vocabulary()) if word[0] & 0xC0 == 0x80 or _is_cut(word)}


def _is_cut(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return True
    return False
