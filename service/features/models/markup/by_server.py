"""The turns of a model whose server has read them already, as one text between marks of our own.

    Writing: reasoning, content and calls, as the server tells them ─▶ text with marks
    ByServer: that text ─▶ segments, as every other markup's parser makes them

So no later code knows that the server's parser was there. A mark is SIGN and a letter; SIGN in the model's text is
written twice, so no text of it can be taken for a mark. A mark is never cut in two.
"""

import re
from collections.abc import Mapping, Sequence

from service.features.models.markup.stream import MAX_SPACE, MarkupPart, Segments
from service.harmony import tokens
from service.harmony.segments import Segment

SIGN = "\x1e"
"""RECORD SEPARATOR, which hardly any text has."""

THINKS, ANSWERS, CALLS, NAMED, CALLED, ENDS = (SIGN + letter for letter in "tacndz")
"""The marks where reasoning, an answer, and a call begin (its name follows); where the name, the call, the turn end."""

WORD, ENDED = 0, 1
"""The ids of a generation, which only count: the id of any token, and the last one of a turn that has ended."""

_SPACE = " \t\r\n"

_MARK = re.compile(f"{SIGN}(.)", re.DOTALL)


def opens(written: str) -> bool:
    """Whether a text that was written begins with a mark."""
    return written[:1] == SIGN != written[1:2]


class ServerWriting:
    """A turn written down as a server tells it. White space that stands alone before a call is dropped, and so are line
    breaks between reasoning and the answer: templates write them anew.
    """

    def __init__(self) -> None:
        self._part = MarkupPart.BEFORE
        self._thought = False
        self._space = ""

    def thinks(self, text: str) -> str:
        """Some reasoning."""
        return self._in(MarkupPart.THINKING, THINKS, text) if text else ""

    def answers(self, text: str) -> str:
        """Some of the answer."""
        if not self.answers_now(text):
            self._space += text
            return ""
        if self._part is not MarkupPart.TEXT:
            text, self._space = self._space + text, ""
            text = text.lstrip("\n") if self._thought else text
        return self._in(MarkupPart.TEXT, ANSWERS, text) if text else ""

    def answers_now(self, text: str) -> bool:
        """Whether this text of an answer is written at once: white space waits for the next text."""
        waiting = self._space + text
        return self._part is MarkupPart.TEXT or len(waiting) > MAX_SPACE or bool(waiting.strip(_SPACE))

    def calls(self, name: str) -> str:
        """A call of the tool with this name, whose arguments follow."""
        return f"{self._turn(MarkupPart.CALL)}{CALLS}{_escape(name)}{NAMED}"

    def arguments(self, text: str) -> str:
        """Some of the arguments of the call."""
        return _escape(text)

    def ends(self) -> str:
        """The model has ended its turn."""
        space = self._space if self._part is MarkupPart.BEFORE and not self._thought else ""
        return (self._in(MarkupPart.TEXT, ANSWERS, space) if space else "") + self._turn(MarkupPart.BEHIND) + ENDS

    def _in(self, part: MarkupPart, mark: str, text: str) -> str:
        return ("" if self._part is part else self._turn(part) + mark) + _escape(text)

    def _turn(self, part: MarkupPart) -> str:
        """The mark that ends an open call, else nothing; another part begins."""
        closing = CALLED if self._part is MarkupPart.CALL else ""
        self._part, self._space, self._thought = part, "", self._thought or part is MarkupPart.THINKING
        return closing


def _escape(text: str) -> str:
    return text.replace(SIGN, SIGN + SIGN) if SIGN in text else text


class ByServer(Segments):
    """The parser of it; see stream.py."""

    def __init__(self, recipients: Mapping[str, str]) -> None:
        super().__init__(recipients)
        self._name: list[str] | None = None
        """The name of the call that begins, as far as it is known."""

    def feed(self, ids: Sequence[int], text: str) -> list[Segment]:
        """See StreamParser."""
        if not opens(text):
            self._ids += ids
            ids = ()
        said, *marked = _MARK.split(text)
        self._text(said)
        for letter, said in zip(marked[::2], marked[1::2], strict=True):
            self._mark(SIGN + letter)
            self._ids += ids
            ids = ()
            self._text(said)
        return self._give()

    def end(self) -> list[Segment]:
        """See StreamParser."""
        self._close(None)
        return self._give()

    def _text(self, text: str) -> None:
        if self._name is not None:
            self._name.append(text)
        elif self._segment:
            self._say(text)

    def _mark(self, mark: str) -> None:
        if mark == SIGN + SIGN:
            self._text(SIGN)
        elif mark == THINKS:
            self._open(MarkupPart.THINKING)
        elif mark == ANSWERS:
            self._open(MarkupPart.TEXT)
        elif mark == CALLS:
            self._close(tokens.END)
            self._name = []
        elif mark == NAMED and self._name is not None:
            name, self._name = "".join(self._name), None
            self._open(MarkupPart.CALL, name)
        elif mark == CALLED:
            self._close(self._call_stop)
            self.part = MarkupPart.BEHIND
        elif mark == ENDS:
            if not self._segment and self.part is not MarkupPart.BEHIND:
                self._open(MarkupPart.TEXT)
            self._close(tokens.RETURN)
