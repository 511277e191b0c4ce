"""Sampled tokens to segments: a header, text as it comes, and an end. Tolerant of anything that a model samples.

The segmenter is a state machine over token ids. It knows Harmony's marks and nothing of items or events. It keeps
three promises on any input: it never raises, it takes time linear in the tokens, and every ordinary token's text
comes out again, as part of a header (`Header.raw`) or as text, save for a header that leads to nothing: one that names
neither channel nor recipient, or that the end cut short. It marks a mended message as not `clean`; the tokens of such a
message are not kept for later prompts, and its text is rendered anew.

    state     token                 what it does
    BETWEEN   START                 HEADER
              a closing mark        stays (a doubled end)
              anything else         HEADER, unclean: the model forgot `<|start|>assistant`
    HEADER    MESSAGE               CONTENT: the header is read
              START                 the header is read without its MESSAGE mark and closed; HEADER again
              a closing mark        the same; BETWEEN
              other marks, text     collected, up to MAX_HEADER_TOKENS; then read without its mark: CONTENT, unclean
    CONTENT   a closing mark        the segment ends; BETWEEN
              START, CHANNEL        the segment ends, unclean (the end was forgotten); HEADER
              other specials        dropped, unclean
              text                  goes out as it decodes

A generation begins in HEADER, because the prompt ends with `<|start|>assistant`.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from service.harmony import tokens
from service.harmony.header import Header, cut_short, read_header

MAX_HEADER_TOKENS = 128
"""A longer header is none: the longest legal one, a 64-character function name, has some 60 tokens."""

_CLOSING = frozenset({tokens.END, *tokens.ENDS})


class Opened(msgspec.Struct, frozen=True):
    """A segment begins. Text that stood in the header by mistake follows as ordinary text."""

    header: Header


class Closed(msgspec.Struct, frozen=True):
    """A segment ends.

    `ids` are its tokens as sampled, closing mark included; the first segment of a generation lacks the
    `<|start|>assistant` that stands in the prompt. `stop` is the closing mark, or None where there was none.
    """

    ids: Sequence[int]
    stop: int | None
    clean: bool


Segment = Opened | str | Closed


class SegmenterState(Enum):
    """The states of the segmenter; see the table above."""

    BETWEEN = 0
    HEADER = 1
    CONTENT = 2


class Texts(dict[int, str | None]):
    """The text of ids whose bytes are whole UTF-8, None for all others; each is made when it is first asked for."""

    def __missing__(self, id: int) -> str | None:
        """Decode an id's bytes. Raises IndexError for an id that can't exist."""
        try:
            text = tokens.byte_table()[id].decode() or None
        except UnicodeDecodeError:
            text = None
        self[id] = text
        return text


TEXTS = Texts()
"""The text of every id, for all who read streams."""


class Segmenter:
    """Feed it ids as they are sampled, then call `end` once. Both return the segments' new parts, in order."""

    def __init__(self) -> None:
        self.state = SegmenterState.HEADER
        self._ids: list[int] = []
        """The open segment's ids."""
        self._header_ids: list[int] = []
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._midway = False
        """Whether the decoder holds bytes of a character whose rest has not been sampled yet."""
        self._clean = True
        self._first = True

    @property
    def at_start(self) -> bool:
        """Whether a header begins next, behind a prompt's `<|start|>assistant`."""
        return self.state is SegmenterState.HEADER and not self._ids

    def feed(self, ids: Sequence[int]) -> list[Segment]:
        """Take some sampled ids; return the segments' parts that they complete, at most a few for each id."""
        out: list[Segment] = []
        for token in ids:
            if self.state is SegmenterState.CONTENT and not self._midway and 0 <= token < tokens.FIRST_SPECIAL:
                text = TEXTS[token]
                if text is not None:
                    self._ids.append(token)
                    out.append(text)
                    continue
            self._step(token, out.append)
        return out

    def end(self) -> list[Segment]:
        """End the generation: close the open segment."""
        out: list[Segment] = []
        if self.state is SegmenterState.HEADER and self._header_ids:
            header, text = read_header(self._header_ids, role_given=self._first, marked=False)
            if text and not cut_short(self._header_ids, text):
                self._open(out.append, header, text)
        if self.state is SegmenterState.CONTENT:
            self._close(out.append, stop=None)
        self.state = SegmenterState.BETWEEN
        return out

    def _step(self, token: int, emit: Callable[[Segment], None]) -> None:
        if not 0 <= token <= tokens.LAST_LEGAL:
            self._clean = False
        elif self.state is SegmenterState.CONTENT:
            self._content(token, emit)
        elif self.state is SegmenterState.HEADER:
            self._header(token, emit)
        elif token == tokens.START:
            self._begin(token)
        elif token not in _CLOSING:
            self._begin()
            self._clean = False
            self._header(token, emit)

    def _begin(self, *marks: int) -> None:
        """Begin a new segment's header, with the mark that opened it."""
        self.state = SegmenterState.HEADER
        self._ids = list(marks)
        self._header_ids = []
        self._clean = True

    def _header(self, token: int, emit: Callable[[Segment], None]) -> None:
        if token == tokens.MESSAGE:
            self._ids.append(token)
            self._open(emit, *read_header(self._header_ids, role_given=self._first, marked=True))
        elif token in _CLOSING or token == tokens.START:
            self._header_without_message(token, emit)
        else:
            self._ids.append(token)
            self._header_ids.append(token)
            if len(self._header_ids) >= MAX_HEADER_TOKENS:
                self._open(emit, *read_header(self._header_ids, role_given=self._first, marked=False))

    def _header_without_message(self, token: int, emit: Callable[[Segment], None]) -> None:
        """End the segment at a mark that came before its content began."""
        header, text = read_header(self._header_ids, role_given=self._first, marked=False)
        if text or header.channel or header.recipient:
            self._open(emit, header, text)
            self._content(token, emit)
            return
        self._first = False
        self.state = SegmenterState.BETWEEN
        if token == tokens.START:
            self._begin(token)

    def _open(self, emit: Callable[[Segment], None], header: Header, text: str) -> None:
        self._clean = self._clean and header.clean
        self._first = False
        self.state = SegmenterState.CONTENT
        self._header_ids = []
        emit(Opened(header))
        if text:
            emit(text)

    def _content(self, token: int, emit: Callable[[Segment], None]) -> None:
        if token < tokens.FIRST_SPECIAL:
            self._ids.append(token)
            self._text(tokens.byte_table()[token], emit)
        elif token in _CLOSING:
            self._ids.append(token)
            self._close(emit, stop=token)
        elif token in (tokens.START, tokens.CHANNEL):
            self._clean = False
            self._close(emit, stop=None)
            self._begin()
            self._clean = token == tokens.START
            self._ids.append(token)
            if token == tokens.CHANNEL:
                self._header_ids.append(token)
        else:
            self._clean = False

    def _text(self, piece: bytes, emit: Callable[[Segment], None]) -> None:
        """Emit the text that `piece` completes; a byte that can't be part of a character becomes U+FFFD."""
        text = self._decoder.decode(piece)
        self._midway = bool(self._decoder.getstate()[0])
        if text:
            emit(text)

    def _close(self, emit: Callable[[Segment], None], *, stop: int | None) -> None:
        if self._midway:
            emit(self._decoder.decode(b"", final=True))
            self._decoder.reset()
            self._midway = False
        emit(Closed(self._ids, stop, self._clean))
        self.state = SegmenterState.BETWEEN
