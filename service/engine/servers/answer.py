"""The bytes of a server's stream to the chunks of the engine's port. Pure.

Each read of the connection becomes one chunk, however many events it holds. The chunk with the finish comes when the
stream has ended: the number of cached tokens may come behind the finish, and a connection can be used again only once
its answer was read to the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from service.engine.port import (
    Chunk,
    EngineBroke,
    EngineError,
    EngineUnavailable,
    Finish,
    Sampling,
    Take,
    TokenLogprobs,
)

MAX_EVENT_BYTES = 16 << 20
"""The largest event: some thousands of tokens that piled up, with 20 alternatives each."""

DONE = b"[DONE]"

MOST_PARTS = 3
"""The most tokens without a text that a character can begin with: it has 4 bytes, and a token at least one."""

FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH, "repetition": Finish.STOP, "abort": Finish.ABORT}
"""Reasons why a generation ends, as vLLM and the others call them."""


class LineEnds:
    """The ends of a stream's lines: each is CR, LF or CRLF (WHATWG's HTML, 9.2.5), which may be cut."""

    _after_cr = False

    def normalize(self, data: bytes) -> bytes:
        if self._after_cr or b"\r"[0] in data:  # a number is found in less time than bytes are
            data = data[self._after_cr and data[:1] == b"\n" :]
            self._after_cr = data[-1:] == b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


class Answer(ABC):
    """One stream, read as it comes. `logprobs` is how many were asked for, None is none.

    A subclass's `_take` reads an event: it adds to `tokens` and `logprobs`, and sets
    `cached_tokens` and, by `_finish_as`, the finish.
    """

    name: str
    hint = ""
    """The remedy behind a message that tokens came without their text."""
    ends_at_done = False
    """Whether [DONE] is the end behind a finish, and not only the end of the stream."""

    def __init__(self, *, logprobs: int | None, decoded: bool = False) -> None:
        self._rest = bytearray()
        self._line_ends = LineEnds()
        self.begun = False
        """Whether tokens came."""
        self.ending = False
        """Whether the server was asked to abort it."""
        self.over = False
        """Whether no more is wanted, though the server would go on."""
        self._alternatives = logprobs
        self._decoded = decoded
        self._text: list[str] = []
        """The tokens' text, where that is wanted."""
        self._textless = 0
        """How many tokens came before any text, where that is wanted."""
        self._spoke = False
        self.lost: list[tuple[int, str]] = []
        """Places of the next chunk's tokens where the server left out ids, and the text of all of them there."""
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finish: Finish | None = None
        self._cached_tokens: int | None = None
        self._read_tokens: int | None = None
        """How many tokens the prompt has, where only the server knows."""

    @abstractmethod
    def _take(self, payload: bytes) -> None:
        """Add what an event says. Raises EngineError."""

    def feed(self, data: bytes) -> Iterator[Chunk]:
        """The chunks of the next bytes. Raises EngineError, after the chunks before it."""
        error, finished = None, False
        try:
            for payload in self._payloads(self._line_ends.normalize(data)):
                finished = self.finished
                self._take(payload)
            if len(self._rest) > MAX_EVENT_BYTES:
                raise EngineError(f"the {self.name} server sent an event of more than {MAX_EVENT_BYTES} bytes")
        except EngineError as raised:
            error = raised
        yield from self._take_chunks()
        if error is not None and not finished:  # behind the finish no more is said of the answer
            raise error

    def _take_chunks(self) -> Sequence[Chunk]:
        """One chunk of the tokens added since the last; none if there are none."""
        if not self._tokens:
            return ()
        self.begun = True
        logprobs, text = None if self._alternatives is None else self._logprobs, "".join(self._text)
        made = Chunk(self._tokens, None, self._cached_tokens, logprobs, text, self._read_tokens)
        self._read_tokens = None
        self._spoke = self._spoke or bool(text)
        self._textless += len(self._tokens) if self.mute else 0
        self._tokens, self._logprobs, self._text = [], [], []
        return (made,)

    @property
    def mute(self) -> bool:
        """Whether the text of its tokens is wanted, and none has come yet."""
        return self._decoded and not self._spoke

    @property
    def finished(self) -> bool:
        """Whether the finish came; only the number of cached tokens may follow."""
        return self._finish is not None

    def end(self) -> Chunk:
        """The last chunk, once the stream has ended. Raises EngineUnavailable if that was too early, and EngineError if
        tokens came without their text: only a stop has none, and the beginning of a character.
        """
        if self._finish is None:
            raise EngineBroke(f"the {self.name} server broke off")
        if self.mute and self._textless > (1 if self._finish is Finish.STOP else MOST_PARTS):
            raise self._without_text()
        logprobs: list[TokenLogprobs] | None = None if self._alternatives is None else []
        return Chunk([], self._finish, self._cached_tokens, logprobs, prompt_tokens=self._read_tokens)

    def _without_text(self) -> EngineError:
        return EngineError(f"the {self.name} server sent tokens without their text{self.hint}")

    def _payloads(self, data: bytes) -> Iterator[bytes]:
        """The data of the lines that these bytes complete, of which each is one event, as no server sends others.
        Comments, which keep connections alive, are passed over.
        """
        if b"\n"[0] not in data:
            self._rest += data
            return
        if self._rest:
            data = bytes(self._rest) + data
        *lines, left = data.split(b"\n")
        self._rest[:] = left
        for line in lines:
            if line[:5] == b"data:":
                if (value := line[5:].strip()) == DONE:
                    self.over = self.over or (self.ends_at_done and self.finished)
                elif value:
                    yield value
            elif line[:6] == b"error:":  # as llama.cpp's of before
                yield b'{"error":' + line[6:] + b"}"

    def _finish_as(self, reason: str) -> None:
        """Note why it stopped. Raises EngineError for an end neither of its own nor asked for here."""
        if reason == "abort" and not self.ending:
            raise EngineUnavailable(f"the {self.name} server aborted the generation")
        if reason not in FINISHES:
            raise EngineError(f"the {self.name} server ended the generation with {reason[:100]!r}")
        self._finish = FINISHES[reason]


class Undecided:
    """The chunks of an answer that `take` does not get yet, as their server may still say something that makes them no
    answer: those without any text, and the one that may be the last until its finish. Whoever keeps tokens could not
    tell them from a whole answer.
    """

    def __init__(self, answer: Answer, sampling: Sampling, take: Take) -> None:
        self._answer, self._take = answer, take
        self._stop_ids, self._left = sampling.stop_ids, sampling.max_tokens
        self._chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> bool:
        """Take it, or keep it back; see Take."""
        self._left -= len(chunk.tokens)
        last = self._left < 1 or (bool(chunk.tokens) and chunk.tokens[-1] in self._stop_ids)
        if self._answer.mute or (last and not self._answer.finished):
            self._chunks.append(chunk)
            return True
        return self.decide(chunk)

    def decide(self, chunk: Chunk) -> bool:
        chunks, self._chunks = self._chunks, []
        for each in chunks:
            self._take(each)
        return self._take(chunk)
