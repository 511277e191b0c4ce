"""The speech of a model that doesn't speak Harmony: its server is asked how it cuts texts into ids.

A user's text never becomes a mark: where it spells one that is a single id, an invisible character is put into it.
Only the server knows which texts are marks, so it is asked about those that look like some.
"""

import asyncio
import re
from collections.abc import Collection, Sequence, Set
from typing import Any

import msgspec
from cachetools import LRUCache

from service.engine.port import SHOWN, EngineError, EngineUnavailable, ShownTools, Speech, Transcript
from service.engine.servers.kind import Pieces, Speeches, Written
from service.features.models.markup.families import ENDS, FAMILIES, KEEPS, MARKS, family_of
from service.features.models.markup.marks import LOOKS_LIKE_A_MARK, like_marks
from service.steps import BRIEFLY

_PROBED_NAME, _PROBED_ARGUMENT, _PROBED_OUTPUT = "probedtool", "probedargument", "probedoutput"
"""Words that no template writes by itself."""

_TOOL = {
    "type": "function",
    "function": {
        "name": _PROBED_NAME,
        "description": "Looks",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
_CALLED = {"name": _PROBED_NAME, "arguments": f'{{"at": "{_PROBED_ARGUMENT}"}}'}
_PROBE: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call_0", "type": "function", "function": _CALLED}]},
    {"role": "tool", "tool_call_id": "call_0", "content": _PROBED_OUTPUT},
]

_THINKS = {"enable_thinking": True, "thinking": True}
_PROBED_THOUGHT = "probedthought"
_THOUGHT = msgspec.json.encode(
    [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi", "reasoning_content": _PROBED_THOUGHT, "reasoning": _PROBED_THOUGHT},
        {"role": "user", "content": "And"},
    ]
)

BREAK = "\u2060"
"""WORD JOINER: it takes no room, and breaks no line."""

THREAD_FROM_CHARS = 65_536
"""A text of this length takes some 0.5 ms."""

MAX_KNOWN = 4096
"""The most texts of which we remember whether they are marks, some 400 kB, and the most asked about at once."""

COMMON = re.compile(
    r"<\|[^|<>\s]+\|>|<(?:start|end)_of_turn>|\[\|[^\[\]|\s]+\|\]"
    r"|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_(?:CALLS|RESULTS|CONTENT)|SYSTEM_PROMPT|THINK|CALL_ID|ARGS)\]"
)
"""Matches marks of some model: those in `<|…|>`, Gemma's, EXAONE's and Mistral's."""

PLACES = frozenset(
    {"<__media__>", "<__image__>", "<image>", "<start_of_image>", "<image_soft_token>", "<IMG_CONTEXT>", "[IMG]"}
)
"""Texts in whose place servers put pictures. The first three are many ids: llama.cpp's, where its release has none of
chance, and InternVL's. The others are of servers that don't tell their cuts.
"""

WORSE_SYSTEM = re.compile(r"smollm2", re.IGNORECASE)
"""Models whose template adds a system message with which they answer worse, by their names. SmolLM2-135M, quantised,
answers anything with nonsense behind its own.
"""


async def speech_of(pieces: Pieces, written: Written, model: str) -> Speech:
    """How the model with this name speaks, by how its server cuts texts and what its template has `written`."""
    asked = dict.fromkeys((*MARKS, *ENDS))
    marks = {piece: id for id, piece in await pieces("\n".join(asked)) if piece in asked}
    ends = tuple(marks[end] for end in ENDS if end in marks)
    worse = WORSE_SYSTEM.search(model) is not None
    family = family_of(model, marks)
    return Speech(
        family, tuple(marks.items()), ends, worse, await _shown_parts(written), keeps=await _keeps(written, family)
    )


async def _shown_parts(written: Written) -> ShownTools:
    """The parts that a template shows of tools: all, where it shows that there is one, or it can't be found out."""
    prompt = await _try_prompt(written, Transcript(msgspec.json.encode(_PROBE[:1]), msgspec.json.encode([_TOOL])))
    if prompt is None or _PROBED_NAME in prompt:
        return SHOWN
    prompt = await _try_prompt(written, Transcript(msgspec.json.encode(_PROBE))) or ""
    return ShownTools(tools=False, calls=_PROBED_ARGUMENT in prompt, outputs=_PROBED_OUTPUT in prompt)


async def _keeps(written: Written, family: str) -> tuple[tuple[str, bool], ...]:
    """The options with which a template writes earlier reasoning that it drops without; the family's where the server
    shows none of its prompts. Raises EngineUnavailable.
    """
    for option in ((), *(((name, value),) for name, value in KEEPS.items())):
        prompt = await _try_prompt(written, Transcript(_THOUGHT, options=msgspec.json.encode(_THINKS | dict(option))))
        if prompt is None:
            named = FAMILIES[family].keeps
            return ((named, KEEPS[named]),) if named else ()
        if _PROBED_THOUGHT in prompt:
            return option
    return ()


async def _try_prompt(written: Written, transcript: Transcript) -> str | None:
    """The prompt of a transcript; nothing where the template refuses it. Raises EngineUnavailable."""
    try:
        return await written(transcript)
    except EngineUnavailable:
        raise
    except EngineError:
        return ""


class Disarming(Speeches):
    """Takes the marks out of users' texts, which it learns from one kind of server."""

    def __init__(self) -> None:
        self._known = LRUCache[str, bool](MAX_KNOWN)
        """Texts that look like marks, and whether they are."""

    async def speech_of(self, pieces: Pieces, written: Written, model: str) -> Speech:
        """See Speeches. A server that is asked anew may have another model, with other marks."""
        self._known.clear()
        return await speech_of(pieces, written, model)

    async def disarm(self, pieces: Pieces, transcript: Transcript, *, sees: bool = False) -> Transcript:
        """A transcript in which only our own marks are spelled; tools' descriptions and the template's options are
        searched, too. Of a model that `sees` the places of pictures are among the marks.
        """
        places = PLACES if sees else frozenset[str]()
        messages = await self._break_marks(pieces, transcript.messages, places)
        tools = await self._break_marks(pieces, transcript.tools, places)
        options = await self._break_marks(pieces, transcript.options, places)
        if transcript.own:
            messages = messages.replace(transcript.own.encode(), b"")
        return msgspec.structs.replace(transcript, messages=messages, tools=tools, options=options, own="")

    async def _break_marks(self, pieces: Pieces, written: bytes, places: Set[str]) -> bytes:
        """A text without marks. Long ones are searched in a thread."""
        text = written.decode()
        here = len(text) < THREAD_FROM_CHARS
        found = _like_marks(text) if here else await asyncio.to_thread(_like_marks, text)
        marks = await self._marks(pieces, list(found)) | (places & found.keys())
        if not marks:
            return written
        return (_without(text, marks) if here else await asyncio.to_thread(_without, text, marks)).encode()

    async def _marks(self, pieces: Pieces, texts: Sequence[str]) -> set[str]:
        """Those of the texts that are marks."""
        marks = set[str]()
        for start in range(0, len(texts), MAX_KNOWN):
            some = texts[start : start + MAX_KNOWN]
            known = {each: self._known[each] for each in some if each in self._known}
            if unknown := [each for each in some if each not in known]:
                single = {piece for _, piece in await pieces("\n".join(unknown))}
                learned = {each: each in single for each in unknown}
                self._known.update(learned)
                known |= learned
            marks.update(each for each, is_mark in known.items() if is_mark)
            await asyncio.sleep(BRIEFLY)
        return marks


async def common_pieces(text: str) -> Sequence[tuple[int, str]]:
    """The pieces from a server that doesn't tell its cuts: the marks of common models count as marks."""
    known = {*MARKS, *ENDS}
    return [(0, each) for each in text.split("\n") if each in known or COMMON.fullmatch(each)]


def _like_marks(text: str) -> dict[str, None]:
    """The texts in it that look like marks, each once."""
    return dict.fromkeys(_meant(found) for pattern in LOOKS_LIKE_A_MARK for found in like_marks(pattern, text))


def _meant(found: re.Match[str]) -> str:
    """A text that looks like a mark as it stands outside of JSON, in which its quotes are escaped, perhaps twice."""
    return re.sub(r'\\+"', '"', found[0]) if '"' in found[0] else found[0]


def _without(text: str, marks: Collection[str]) -> str:
    for pattern in LOOKS_LIKE_A_MARK:
        parts, at = list[str](), 0
        for found in like_marks(pattern, text):
            if _meant(found) in marks:
                parts += (text[at : found.start() + 1], BREAK)
                at = found.start() + 1
        text = "".join([*parts, text[at:]])
    return text
