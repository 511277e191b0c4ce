"""The bytes of a vLLM server's stream to the chunks of the engine's port. Pure.

Whatever came at once is one chunk, however many events it was. The chunk with the finish comes when the stream has
ended, since the number of cached tokens comes behind the finish, and since a connection can be used again only once
its answer was read to the end.
"""

from collections.abc import Iterator

from service.engine.port import Chunk, EngineBroke, EngineError, EngineUnavailable, Finish, TokenLogprobs
from service.engine.vllm import wire

MAX_EVENT_BYTES = 16 << 20
"""The largest event: some thousands of tokens that piled up, with 20 alternatives each."""

_FINISH = {"stop": Finish.STOP, "length": Finish.LENGTH, "repetition": Finish.STOP}


class Answer:
    """One stream, read as it comes. `logprobs` is how many were asked for, None is none."""

    def __init__(self, *, logprobs: int | None, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = bytearray()
        self._searched = 0
        self.begun = False
        """Whether tokens came."""
        self._alternatives = logprobs
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finish: Finish | None = None
        self._cached_tokens: int | None = None
        self.ending = False
        """Whether the server was asked to abort it."""

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """What the next bytes say, in at most one chunk. Raises EngineError, after the chunk of what came before it."""
        self._rest += data
        error = None
        try:
            for payload in self._payloads():
                self._add(wire.read_event(payload))
        except EngineError as raised:
            error = raised
        if self._tokens:
            self.begun = True
            yield Chunk(self._tokens, logprobs=None if self._alternatives is None else self._logprobs)
            self._tokens, self._logprobs = [], []
        if error is not None:
            raise error

    @property
    def finished(self) -> bool:
        """Whether the finish came; only the number of cached tokens may follow."""
        return self._finish is not None

    def end(self) -> Chunk:
        """The last chunk, once the stream has ended. Raises EngineUnavailable if that was too early."""
        if self._finish is None:
            raise EngineBroke("the vLLM server broke off")
        return Chunk([], self._finish, self._cached_tokens, None if self._alternatives is None else [])

    def _payloads(self) -> Iterator[bytes]:
        """The data of the events that are complete; comments, which keep connections alive, are passed over."""
        start = 0
        while (end := self._rest.find(wire.END_OF_EVENT, max(start, self._searched))) >= 0:
            lines = bytes(self._rest[start:end])
            start = self._searched = end + len(wire.END_OF_EVENT)
            if lines.startswith(wire.DATA) and not lines.endswith(wire.DONE):
                yield lines[len(wire.DATA) :]
        del self._rest[:start]
        self._searched = max(0, len(self._rest) - 1)
        if len(self._rest) > self._max_event_bytes:
            raise EngineError(f"the vLLM server sent an event of more than {self._max_event_bytes} bytes")

    def _add(self, event: wire.Event) -> None:
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        for choice in event.choices:
            if self._alternatives is not None:
                self._logprobs += wire.read_logprobs(choice, self._alternatives)
            self._tokens += choice.token_ids or ()
            if choice.finish_reason is not None:
                self._finish = _finish(choice.finish_reason, asked=self.ending)


def _finish(reason: str, *, asked: bool) -> Finish:
    """Why it stopped. Raises EngineError where that was not for the generation's sake, and nobody here has `asked`."""
    if reason == "abort" and asked:
        return Finish.ABORT
    if reason == "abort":
        raise EngineUnavailable("the vLLM server aborted the generation")
    if reason not in _FINISH:
        raise EngineError(f"the vLLM server ended the generation with {reason[:100]!r}")
    return _FINISH[reason]
