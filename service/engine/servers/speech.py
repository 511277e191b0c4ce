"""How a model speaks that doesn't speak Harmony: its server is asked how it cuts texts into ids.

What somebody says never becomes a mark: where it spells one that is a single id, a character that nobody sees is put
into it. Which texts are marks only the server knows, so it is asked about those that look like some.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import ParamSpec, TypeVar

from service.markup.families import ENDS, MARKS, family_of
from service.markup.speech import Speech

P = ParamSpec("P")
T = TypeVar("T")

Pieces = Callable[[str], Awaitable[Sequence[tuple[int, str]]]]
"""A text as the server cuts it, in which marks are marks: each id, and what it stands for."""

LOOKS_LIKE_A_MARK = (re.compile(r"<[^<>\s]{1,62}>"), re.compile(r"\[/?[A-Z_]{2,32}\]"))
"""How models spell marks: `<|im_end|>`, `</think>` or with DeepSeek's wide bars, and `[INST]`. Two patterns: one that
begins with a certain character is searched ten times as fast.
"""

BREAK = "\u2060"
"""WORD JOINER: it takes no room, and breaks no line."""

THREAD_FROM_CHARS = 65_536
"""A text of this length takes some 0.5 ms."""

MAX_KNOWN = 4096
"""Of how many texts it is remembered whether they are marks: some 400 kB."""

WORSE_SYSTEM = re.compile(r"smollm2", re.IGNORECASE)
"""Models whose template adds a system message with which they answer worse, by their names. SmolLM2-135M, quantised,
answers anything with nonsense behind its own.
"""


async def speech_of(pieces: Pieces, model: str) -> Speech:
    """How the model with this name speaks."""
    asked = dict.fromkeys((*MARKS, *ENDS))
    marks = {piece: id for id, piece in await pieces("\n".join(asked)) if piece in asked}
    ends = tuple(marks[end] for end in ENDS if end in marks)
    return Speech(
        family_of(model, marks), tuple(marks.items()), ends, empty_system=WORSE_SYSTEM.search(model) is not None
    )


class Disarming:
    """Takes the marks out of what somebody says."""

    def __init__(self) -> None:
        self._known: dict[str, bool] = {}
        """Texts that look like marks, and whether they are."""

    async def disarmed(self, pieces: Pieces, messages: bytes) -> bytes:
        """Messages, JSON, in which no mark is spelled."""
        text = messages.decode()
        found = await _at_leisure(text, _like_marks, text)
        await self._learn(pieces, [each for each in found if each not in self._known])
        marks = {each for each in found if self._known[each]}
        if not marks:
            return messages
        return (await _at_leisure(text, _without, text, marks)).encode()

    async def _learn(self, pieces: Pieces, new: Iterable[str]) -> None:
        unknown = list(new)
        if not unknown:
            return
        single = {piece for _, piece in await pieces("\n".join(unknown))}
        if len(self._known) + len(unknown) > MAX_KNOWN:
            self._known.clear()
        self._known |= {each: each in single for each in unknown}


async def _at_leisure(text: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the work on a text returns, by a thread where it takes long."""
    if len(text) < THREAD_FROM_CHARS:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _like_marks(text: str) -> dict[str, None]:
    """The texts in it that look like marks, each once."""
    return dict.fromkeys([each for pattern in LOOKS_LIKE_A_MARK for each in pattern.findall(text)])


def _without(text: str, marks: Collection[str]) -> str:
    for pattern in LOOKS_LIKE_A_MARK:
        text = pattern.sub(lambda each: _broken(each[0]) if each[0] in marks else each[0], text)
    return text


def _broken(mark: str) -> str:
    return f"{mark[0]}{BREAK}{mark[1:]}"
