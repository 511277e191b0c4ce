"""A model of any markup, as an engine: what it says is a script, and its prompts can be read.

The vocabulary of one that speaks by a chat template is one id a character, and one a mark; its template is ChatML, in
which turns of the assistant are written as its family writes them. So what stands in a prompt is to be seen, and a
generation may go on from any place of what it would have said.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from service.engine.port import (
    Chunk,
    EngineBroke,
    EngineError,
    EngineRefused,
    Finish,
    Generation,
    ModelCard,
    Speech,
    TokenLogprobs,
    Transcript,
)
from service.features.models.markup.families import ENDS, FAMILIES, MARKS
from tests.support.engine.generating import GeneratingEngine
from tests.support.markup.writing import WRITING, Turn, written

FIRST_MARK = 0x110000
"""Behind the last character."""

START, END = "<|im_start|>", "<|im_end|>"
SPELLINGS = (*dict.fromkeys((START, *ENDS, *MARKS)),)
IDS = {spelling: FIRST_MARK + place for place, spelling in enumerate(SPELLINGS)}
ASSISTANT = f"{START}assistant\n"
THINKING = "<think>\n"
CONTEXT_TOKENS = 32_768

Say = Callable[[str], str]
"""What the model says behind a prompt, its marks spelled out, up to and with the end of its turn."""


def encoded(text: str, marks: Sequence[str] = SPELLINGS) -> list[int]:
    """The ids of a text in which `marks` are marks."""
    ids: list[int] = []
    place = 0
    while place < len(text):
        mark = next((each for each in marks if text.startswith(each, place)), None)
        ids.append(ord(text[place]) if mark is None else IDS[mark])
        place += 1 if mark is None else len(mark)
    return ids


def decoded(ids: Sequence[int]) -> str:
    """The text of some ids, marks spelled out."""
    return "".join(chr(id) if id < FIRST_MARK else SPELLINGS[id - FIRST_MARK] for id in ids)


def chatml(message: Mapping[str, Any], markup: str) -> str:
    """One message as the template writes it: reasoning and calls as models of a markup do."""
    said = str(message["content"])
    if message["role"] == "assistant":
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [(function["name"], json.loads(function["arguments"])) for function in functions]
        thoughts = message.get("reasoning_content", "") if WRITING[markup].think else ""
        said = written(markup, Turn(thoughts, said, calls)).removesuffix(END)
    return f"{START}{message['role']}\n{said}{END}\n"


class Speaker(GeneratingEngine):
    """An engine over a model of a family. `say` says what it answers; `pieces` is how many ids a chunk has.

    `generations` are those it was asked for, and `transcripts` what it made prompts of. It fails behind so many ids as
    `breaks_behind` says, one after another. `thinks` is whether its prompts end inside of reasoning, and `keeps` are
    the options that keep the reasoning of earlier turns.
    """

    def __init__(
        self, family: str, say: Say, *, pieces: int = 1, thinks: bool = False, keeps: Mapping[str, bool] | None = None
    ) -> None:
        self._say = say
        self._pieces = pieces
        self._opening = ASSISTANT + (THINKING if thinks else "")
        self._markup = FAMILIES[family].markup if family in FAMILIES else ""
        marks = tuple((mark, IDS[mark]) for mark in (*MARKS, END))
        self.model = ModelCard(
            "speaker", 0, CONTEXT_TOKENS, speech=Speech(family, marks, (IDS[END],), keeps=tuple((keeps or {}).items()))
        )
        self.generations: list[Generation] = []
        self.transcripts: list[Transcript] = []
        self.breaks_behind: list[int] = []

    async def start(self) -> None:
        """It is always ready."""

    async def check(self) -> None:
        """It can always serve."""

    async def close(self) -> None:
        """It holds nothing."""

    def servers(self) -> Mapping[str, bool]:
        return {"speaker": True}

    async def finish(self, id: str) -> bool:
        """It has told what was cached."""
        return False

    @property
    def prompts(self) -> list[str]:
        """The prompts that it was asked with, as text."""
        return [self.decoded(each.prompt) for each in self.generations]

    def encoded(self, text: str) -> list[int]:
        """The ids of what it says."""
        return encoded(text)

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of some ids, marks spelled out."""
        return decoded(ids)

    def begun(self, prompt: Sequence[int]) -> int:
        """Where in a prompt its own turn begins."""
        place = max(place for place, id in enumerate(prompt) if id == IDS[START])
        return place + len(encoded(self._opening))

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        """The prompt in ChatML; tools stand in the first message."""
        self.transcripts.append(transcript)
        text = transcript.messages.decode()
        messages = json.loads(text.replace(transcript.own, "") if transcript.own else text)
        if any(message["content"] == "refuse me" for message in messages):
            raise EngineRefused("roles must alternate")
        listed = transcript.tools.decode()
        tools = "" if listed == "[]" else f"{START}system\n{listed}{END}\n"
        return encoded(tools + "".join(chatml(each, self._markup) for each in messages) + self._opening)

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Go on from the prompt's end with what is said behind its last opening."""
        self.generations.append(generation)
        prompt, sampling = list(generation.prompt), generation.sampling
        place = self.begun(prompt)
        said = prompt[place:]
        whole = self.encoded(self._say(self.decoded(prompt[:place])))
        if whole[: len(said)] != said:
            raise EngineError(f"it would have said {self.decoded(whole)!r}, not {self.decoded(said)!r}")
        left = whole[len(said) :]
        left = left[: next((place for place, id in enumerate(left, 1) if id in sampling.stop_ids), None)]
        rest = left[: sampling.max_tokens]
        breaks = self.breaks_behind.pop(0) if self.breaks_behind else len(rest) + 1
        for place in range(0, len(rest), self._pieces):
            ids = rest[place : place + self._pieces]
            if place + len(ids) > breaks:
                raise EngineBroke("it broke")
            logprobs = None if sampling.logprobs is None else [self._likely(id, generation) for id in ids]
            spoken = "".join(map(self._text, ids)) if generation.decoded else ""
            yield Chunk(ids, None, 0, logprobs, spoken)
        yield Chunk([], Finish.STOP if rest == left else Finish.LENGTH, 0)

    def _likely(self, id: int, generation: Generation) -> TokenLogprobs:
        """A log probability; the likeliest token is the one that was sampled."""
        return TokenLogprobs(-0.5, ((id, -0.5),), (self._text(id),) * 2 if generation.decoded else ())

    def _text(self, id: int) -> str:
        """What an engine says of an id: of the end of a turn, nothing."""
        return "" if id == IDS[END] else self.decoded([id])
