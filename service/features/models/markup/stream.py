"""The parser of all markups: marks and text to segments, the same as Harmony's. Tolerant of any output of a model.

It keeps four promises on any input: it never raises, it takes time linear in the text, however the text is cut into
chunks the joined result is the same, and all text comes out again, as reasoning, as the answer or as the arguments of
a call. The rest is left out: marks that were understood, the text around a call's name and arguments, and
white space at the seams, as the models' templates strip and write it anew:

- before a mark, where nothing else stands between it and the mark before;
- the line breaks at both ends of reasoning, behind it, and around calls, where the markup says so (its seams).

    part      what comes                   what it does
    BEFORE    text                         opens an answer: TEXT
    THINKING  text                         opens reasoning
              the end of thinking          closes it: BEFORE
              a call, a section of calls   the same, once the call has a name
    TEXT      the beginning of thinking    closes the answer: THINKING
              the end of thinking          dropped
              a call, a section of calls   closes the answer, once the call has a name
    CALL      whatever belongs to it       goes to the reader of the call
              its end                      closes it: BEHIND
    BEHIND    text                         opens another answer: TEXT
              marks                        as BEFORE

A call that breaks before it has a name was none: all of it is text, there where it began. One that breaks behind its
name stays unfinished, and all text up to a mark that ends it is a part of its arguments, as written. The model's
end of turn closes an open segment; where nothing is open and nothing was called, it makes an empty answer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from service.features.models.markup.calls import MarkedCall, Read, Schemas, TextMark, is_object
from service.features.models.markup.families import ENDS, Markup
from service.features.models.markup.marks import MarkedPiece, TokenMarks
from service.harmony import tokens
from service.harmony.header import JSON_TYPE, Header
from service.harmony.segments import Closed, Opened, Segment

MAX_SPACE = 64
"""The most white space that waits for what comes behind it; a model that writes more means it."""

READ_CHARS = 1024
"""The most text that is read at once: after each mark, the next one is looked for in no more than that."""

SIGNS = 0xD800
"""The first of the signs in the place of parts of marks: surrogates, which no text has."""

FUNCTIONS = "functions."
"""The prefix of a tool's name where a call is addressed, unless another recipient is named for it."""


T = TypeVar("T")


class MarkupPart(Enum):
    """The part being written; see the table above."""

    BEFORE = "before"
    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"
    BEHIND = "behind"


class _Spelled(NamedTuple):
    """The patterns of marks that are spelled in ordinary tokens: of whole ones, of one begun at a text's end, and of
    their first signs, as in a regex's brackets.
    """

    whole: re.Pattern[str]
    begun: re.Pattern[str]
    signs: str


@lru_cache(maxsize=256)
def _patterns(marks: frozenset[str], tokens: frozenset[str]) -> _Spelled:
    """The patterns of some marks, but for those that are `tokens`."""
    marks -= tokens
    whole, begun = (
        "|".join(map(re.escape, sorted(each, key=len, reverse=True))) or r"(?!)"
        for each in (marks, {mark[:size] for mark in marks for size in range(1, len(mark))})
    )
    signs = re.escape("".join({mark[0] for mark in marks}))
    return _Spelled(re.compile(whole), re.compile(rf"(?:{begun})\Z"), signs)


@lru_cache(maxsize=64)
def _with_signs(value: T, signs: tuple[tuple[str, str], ...]) -> T:
    """A markup whose marks have a sign in the place of each part that is one token; or a value of it."""
    made: Any = value
    if isinstance(value, str):
        for part, sign in signs:
            made = made.replace(part, sign)
    elif isinstance(value, tuple | frozenset):
        made = type(made)(_with_signs(each, signs) for each in made)
    elif isinstance(value, msgspec.Struct):
        members = {name: _with_signs(getattr(value, name), signs) for name in value.__struct_fields__}
        made = msgspec.structs.replace(made, **members)
    return made


class Segments:
    """Makes the segments of one generation, for the parsers: of what is open, and what goes out."""

    def __init__(self, recipients: Mapping[str, str], *, thinking: bool = False) -> None:
        """`recipients` are those of calls, by tool."""
        self.part = MarkupPart.THINKING if thinking else MarkupPart.BEFORE
        """The part being written."""
        self.thought = False
        """Whether there was reasoning."""
        self._recipients = recipients
        self._segment = False
        """Whether a segment is open."""
        self._ids: list[int] = []
        """The open segment's ids, or those of the next one."""
        self._arguments: list[str] = []
        self._out: list[Segment] = []

    def _open(self, part: MarkupPart, tool: str | None = None) -> None:
        """A segment begins; a call's has a tool."""
        self._close(tokens.END)
        self.part, self._segment, self._arguments = part, True, []
        self.thought = self.thought or part is MarkupPart.THINKING
        channel = {MarkupPart.THINKING: "analysis", MarkupPart.CALL: "commentary"}.get(part, "final")
        recipient = None if tool is None else self._recipients.get(tool, FUNCTIONS + tool)
        self._out.append(Opened(_header(channel, recipient)))

    def _say(self, text: str) -> None:
        """More text of the open segment."""
        if text:
            self._out.append(text)
            if self.part is MarkupPart.CALL:
                self._arguments.append(text)

    def _close(self, stop: int | None) -> None:
        """Close the segment that is open, if one is."""
        if self._segment:
            self._out.append(Closed(self._ids, stop, clean=False))
            self._ids, self._segment = [], False

    @property
    def _call_stop(self) -> int | None:
        """How the open call ends: unfinished, where its arguments are no object."""
        return tokens.CALL if is_object("".join(self._arguments)) else None

    def _give(self) -> list[Segment]:
        """All that goes out, which is given once."""
        out, self._out = self._out, []
        return out


class StreamParser(Segments):
    """Reads one generation. Feed it ids and their text as they are sampled, then call `end` once."""

    def __init__(
        self,
        markup: Markup,
        marks: Mapping[str, int],
        schemas: Schemas,
        recipients: Mapping[str, str],
        *,
        thinking: bool,
    ) -> None:
        """`marks` are the special tokens of the vocabulary by their spelling: of those of the markup only the id counts
        then, and those of ENDS end the turn. `schemas` are those of the tools' arguments, and `recipients` those of
        their calls where that isn't the name as a function, both by the names that the model knows. `thinking` is
        whether the prompt ends inside of reasoning.
        """
        super().__init__(recipients, thinking=thinking)
        signs = {part: chr(SIGNS + place) for place, part in enumerate(markup.parts) if part in marks}
        markup = _with_signs(markup, tuple(signs.items())) if signs else markup
        self._signs = {marks[part]: sign for part, sign in signs.items()}
        """A sign in the place of each token that is a part of a mark, by its id."""
        self._spellings = {ord(sign): part for part, sign in signs.items()}
        self._markup = markup
        self._schemas = schemas
        own = {mark: id for mark, id in marks.items() if mark in markup.spellings and mark not in signs}
        ends = {spelling: id for spelling, id in marks.items() if spelling in ENDS and spelling not in own}
        self._ends = frozenset(ends.values())
        self._marks = TokenMarks(own | ends | {part: marks[part] for part in signs})
        self._tokens = frozenset(own)
        self._opening = frozenset({markup.think, *markup.sections, markup.call})
        closing = {markup.think_end, markup.section_end, markup.call_end}
        self._outer = frozenset({*self._opening, *closing, *markup.around} - {""})
        self._last = frozenset({markup.call, markup.call_end, markup.section_end} - {""})
        """The marks that end a call that broke behind its name."""
        self._held = ""
        """Text that may be the beginning of a spelled mark."""
        self._space: str = ""
        """White space that may stand at a seam."""
        self._seam = markup.thinking_seam if thinking else ""
        """The characters that are stripped from where a segment will begin."""
        self._behind_mark = thinking
        """Whether a mark came since the last segment, or before the first one."""
        self._call: MarkedCall | None = None
        """The call that is being read; None once it broke."""
        self._raw: list[str] | None = None
        """All text since a call, or a section of calls, seemed to begin, until there is one."""
        self._raw_ids: list[int] = []
        self._back = self.part
        """The part to return to if there is none."""
        self._called = False
        """Whether something was called in this turn."""
        self._sign: Callable[[str], re.Match[str] | None] | None = None
        """Finds a sign by which a text can't go out as it comes; None where no text can."""

    def feed(self, ids: Sequence[int], text: str) -> list[Segment]:
        """Take some sampled ids and their text, special tokens spelled out; return what they complete, in order."""
        if not self._marks.absent_from(ids):
            for piece in self._marks.split(ids, text):
                self._take(piece)
        elif self._sign is not None and self._sign(text) is None:  # nearly all chunks are like this
            self._ids += ids
            if self.part is MarkupPart.CALL:
                self._arguments.append(text)
            return [text] if text else []
        else:
            self._keep(ids)
            self._read(text)
        self._sign = self._next_sign()
        return self._give()

    def end(self) -> list[Segment]:
        """The generation is over: close what is open."""
        self._flush()
        self._finish(None)
        return self._give()

    def _next_sign(self) -> Callable[[str], re.Match[str] | None] | None:
        """See `_sign`. A line break always is one: it may stand at a seam, and no string of JSON has any."""
        if not self._segment or self._held or self._space or self._raw is not None:
            return None
        signs = self._call.awaits.signs if self._call is not None else ""
        spelled = _patterns(self._awaited_marks(), self._tokens)
        return None if signs is None else re.compile(f"[\n{signs}{spelled.signs}]").search

    @property
    def _edge(self) -> str:
        """The characters at the end of a text that wait for the next text."""
        return self._markup.thinking_seam if self.part is MarkupPart.THINKING else self._markup.call_seam

    # --- marks and text -----------------------------------------------------------------------------------------------

    def _keep(self, ids: Sequence[int]) -> None:
        (self._ids if self._raw is None else self._raw_ids).extend(ids)

    def _take(self, piece: MarkedPiece) -> None:
        """Take ids that are one mark, or ordinary ones with their text."""
        if not piece.mark:
            self._keep(piece.ids)
            self._read(piece.text)
            return
        if piece.ids[0] in self._signs:
            self._keep(piece.ids)
            self._read(self._signs[piece.ids[0]])
            return
        self._flush()
        if piece.ids[0] in self._ends:
            self._keep(piece.ids)
            self._finish(tokens.RETURN)
            return
        opening = piece.text in self._opening
        if not opening:
            self._keep(piece.ids)
        if piece.text not in self._awaited_marks() or not self._mark(piece.text, token=True):
            self._literal(piece.text)
        if opening:
            self._keep(piece.ids)

    def _awaited_marks(self) -> frozenset[str]:
        """The marks that mean something where it stands."""
        if self.part is not MarkupPart.CALL:
            more = self._markup.more
            begins = self.part is MarkupPart.BEFORE and not self._segment
            apart = {self._markup.call} if more and not begins else frozenset[str]()
            return self._outer - apart | ({more} if more and self.part is MarkupPart.BEHIND else frozenset[str]())
        if self._call is None:
            return self._last
        return self._call.awaits.marks if self._raw is None else self._call.awaits.marks | self._outer

    def _read(self, text: str) -> None:
        """Find the marks that are spelled in ordinary tokens, and take them and the text between them."""
        for start in range(0, len(text), READ_CHARS):
            self._read_part(self._held + text[start : start + READ_CHARS])

    def _read_part(self, text: str) -> None:
        at, self._held = 0, ""
        while at < len(text):
            awaited = self._awaited_marks()
            spelled = _patterns(awaited, self._tokens)
            found = spelled.whole.search(text, at)
            begun = spelled.begun.search(text, at)
            if begun is not None and found is not None and begun.start() < found.start():
                found = None  # it may stand within a longer mark
            stop = found.start() if found else begun.start() if begun else len(text)
            if stop > at:
                at += self._text(text[at:stop])
                if at < stop or self._awaited_marks() != awaited:
                    continue
            if found is None:
                self._held = text[at:]
                return
            at = found.end()
            if not self._mark(found[0], token=False):
                self._literal(found[0])

    def _flush(self) -> None:
        """Takes the held text as ordinary text, as it didn't become a mark."""
        held, self._held = self._held, ""
        self._literal(held)

    def _literal(self, text: str) -> None:
        """Take text in which no mark is looked for."""
        at = 0
        while at < len(text):
            at += self._text(text[at:])

    def _text(self, text: str) -> int:
        """Take text; how much of it was taken before something changed."""
        if self.part is MarkupPart.CALL:
            return self._call_text(text)
        if self._raw is None:
            self._write(text)
        elif text.isspace():
            self._raw.append(text)
        else:
            self._give_up()
            return 0
        return len(text)

    def _mark(self, mark: str, *, token: bool) -> bool:
        """Take a mark that is awaited, by its token or by its spelling; or say that it is text here."""
        if self.part is MarkupPart.CALL and self._call_mark(mark):
            return True
        markup = self._markup
        if mark == markup.think:
            return self._think(token)
        if mark == markup.think_end:
            return self._think_end(token)
        if mark in markup.sections:
            self._maybe(mark)
        elif mark in markup.around:
            if self.part is MarkupPart.THINKING:
                return self._think_end(token)
            self._leave()
        elif mark in (markup.call, markup.more) and markup.reads is not None:
            self._maybe(mark)
            self._call, self.part = MarkedCall(markup.reads.steps(self._schemas, self._called_with)), MarkupPart.CALL
        elif mark == markup.section_end and (self._raw is not None or self.part is MarkupPart.BEHIND):
            self._leave()
        elif self.part is not MarkupPart.BEHIND:
            return False
        self._behind_mark = True
        return True

    def _say(self, text: str) -> None:
        """More text of the open segment; a part of a mark that became none is spelled in it."""
        super()._say(text.translate(self._spellings) if self._spellings else text)

    # --- reasoning and the answer -------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        """Text of the reasoning or of the answer; line breaks at its end wait for what comes behind them."""
        text, self._space = self._space + text, ""
        if not self._segment:
            text = text.lstrip(self._seam) if self._seam else text
            if len(text) <= MAX_SPACE and (not text or text.isspace()):
                self._space = text
                return
            self._answer()
        edge = self._edge
        kept = max(len(text.rstrip(edge)) if edge else len(text), len(text) - MAX_SPACE)
        self._space = text[kept:]
        self._say(text[:kept])

    def _answer(self) -> None:
        """Reasoning begins where it stands in that part, else an answer."""
        self._seam, self._behind_mark = "", False
        self._open(self.part if self.part is MarkupPart.THINKING else MarkupPart.TEXT)

    def _think(self, token: bool) -> bool:
        """Thinking begins. Spelled in ordinary tokens in the middle of an answer, the mark is only quoted."""
        if self._segment and self.part is MarkupPart.TEXT and not token:
            return False
        self._leave()
        if self.part is not MarkupPart.THINKING:
            self._close(tokens.END)
            self.part, self._seam = MarkupPart.THINKING, self._markup.thinking_seam
        return True

    def _think_end(self, token: bool) -> bool:
        """Thinking ends; in an answer, nothing does, and a mark of ordinary tokens is text."""
        if self._segment and self.part is MarkupPart.TEXT:
            return token
        self._leave()
        self._close(tokens.END)
        self.part, self._seam = MarkupPart.BEFORE, self._markup.thinking_seam
        return True

    # --- calls --------------------------------------------------------------------------------------------------------

    def _maybe(self, mark: str) -> None:
        """A call seems to begin; it isn't certain until it has a name."""
        if self._raw is None:
            self._raw, self._space, self._back = [self._space], "", self.part
        self._raw.append(mark)

    def _leave(self) -> None:
        """A section of calls is over, and the white space before this mark is at a seam."""
        self._behind_mark, self._space, self._raw = True, "", None
        self._own_raw_ids()

    def _give_up(self) -> None:
        """There was no call: all of it is text."""
        text = "".join(self._raw or ())
        self._call, self._raw, self.part = None, None, self._back
        self._own_raw_ids()
        self._write(text)

    def _own_raw_ids(self) -> None:
        """Gives the ids of the supposed call to the segment that is open, or the next one."""
        self._ids += self._raw_ids
        self._raw_ids = []

    def _call_text(self, text: str) -> int:
        if self._call is None:
            self._say(text)
            return len(text)
        taken = len(text) - len(self._call.take(text))
        if self._raw is not None:
            self._raw.append(text[:taken])
        self._settle()
        return taken

    def _call_mark(self, mark: str) -> bool:
        """Take a mark within a call; False if the call is over and the mark outside."""
        named = self._raw is None
        if self._call is not None:
            self._call.take(TextMark(mark))
            if self._call.whole is None:
                if self._raw is not None:
                    self._raw.append(mark)
                return True
            named = self._raw is None
            self._settle()
        if self.part is MarkupPart.CALL:
            self._end_call(None)
        return named and mark in (self._markup.call_end, self._markup.section_end)

    def _called_with(self, read: Read) -> None:
        """Takes the output of the call's reader."""
        if isinstance(read, str):
            self._say(read)
            return
        self._close(tokens.END)
        self._raw = None
        self._own_raw_ids()
        self._open(MarkupPart.CALL, read.name)

    def _settle(self) -> None:
        """Handles the call's state: still open, whole, or broken, before or behind its name."""
        if self._call is None or self._call.whole is None:
            return
        if self._call.whole:
            self._end_call(self._call_stop)
        elif self._raw is not None:
            self._give_up()
        else:
            self._call = None

    def _end_call(self, stop: int | None) -> None:
        self._close(stop)
        self._call, self.part, self._seam = None, MarkupPart.BEHIND, self._markup.call_seam
        self._called = self._behind_mark = True

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, stop: int | None) -> None:
        """The turn is over, by its mark or because nothing more comes."""
        if self.part is MarkupPart.CALL and self._call:
            self._call.take(None)
            self._settle()
        if self.part is MarkupPart.CALL and self._raw is None:
            self._end_call(None)
        if self._raw is not None:
            self._give_up()
        if self._space and (self._segment or not self._behind_mark):
            space, self._space = self._space, ""
            if not self._segment:
                self._answer()
            self._say(space)
        self._close(stop)
        if stop is not None and not self._called and self.part is not MarkupPart.TEXT:
            self._open(MarkupPart.TEXT)
            self._close(stop)
        self.part, self._space, self._seam, self._called, self._behind_mark = MarkupPart.BEFORE, "", "", False, False


@lru_cache(maxsize=256)
def _header(channel: str, recipient: str | None = None) -> Header:
    """The header of a segment; a call's has a recipient."""
    return Header("assistant", channel, recipient, recipient and JSON_TYPE, None, raw="", clean=False)
