"""A model that speaks by a chat template, as an engine: what it says is a script, and its prompts can be read.

Its vocabulary is one id a character, and one a mark; its template is ChatML. So what stands in a prompt is to be seen,
and a generation may go on from any place of what it would have said.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from service.engine.port import (
    Chunk,
    EngineBroke,
    EngineError,
    EngineRefused,
    Finish,
    Generation,
    ModelCard,
    TokenLogprobs,
)
from service.markup.families import ENDS, MARKS
from service.markup.speech import Speech, Transcript

FIRST_MARK = 0x110000
"""Behind the last character."""

START, END = "<|im_start|>", "<|im_end|>"
SPELLINGS = (*dict.fromkeys((START, *ENDS, *MARKS)),)
IDS = {spelling: FIRST_MARK + place for place, spelling in enumerate(SPELLINGS)}
ASSISTANT = f"{START}assistant\n"
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


def chatml(message: Mapping[str, object]) -> str:
    """One message as the template writes it: reasoning and calls as Qwen's does."""
    said = ""
    if message.get("reasoning_content"):
        said += f"<think>\n{message['reasoning_content']}\n</think>\n\n"
    said += str(message["content"])
    calls = message.get("tool_calls") or ()
    assert isinstance(calls, list | tuple)
    for call in calls:
        function = call["function"]
        written = f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
        said += f"\n<tool_call>\n{written}\n</tool_call>"
    return f"{START}{message['role']}\n{said}{END}\n"


class Speaker:
    """An engine over a model of a family. `say` says what it answers; `pieces` is how many ids a chunk has.

    `generations` are those it was asked for, and `transcripts` what it made prompts of. It fails behind so many ids as
    `breaks_behind` says, one after another, and `thinks` is whether its prompts end inside of reasoning.
    """

    def __init__(self, family: str, say: Say, *, pieces: int = 1, thinks: bool = False) -> None:
        self._say = say
        self._pieces = pieces
        self._thinks = thinks
        marks = tuple((mark, IDS[mark]) for mark in (*MARKS, END))
        self.model = ModelCard("speaker", 0, CONTEXT_TOKENS, speech=Speech(family, marks, (IDS[END],)))
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
        """Itself alone."""
        return {"speaker": True}

    async def finish(self, id: str) -> bool:
        """It has told what was cached."""
        return False

    @property
    def prompts(self) -> list[str]:
        """The prompts that it was asked with, as text."""
        return [decoded(each.prompt) for each in self.generations]

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        """The prompt in ChatML; tools stand in the first message."""
        self.transcripts.append(transcript)
        messages = json.loads(transcript.messages)
        if any(message["content"] == "refuse me" for message in messages):
            raise EngineRefused("roles must alternate")
        tools = "" if transcript.tools == b"[]" else f"{START}system\n{transcript.tools.decode()}{END}\n"
        text = tools + "".join(map(chatml, messages))
        return encoded(text + ASSISTANT + ("<think>\n" if self._thinks else ""))

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """Go on from the prompt's end with what is said behind its last opening."""
        self.generations.append(generation)
        prompt = decoded(generation.prompt)
        opening = prompt.rindex(ASSISTANT) + len(ASSISTANT)
        whole = encoded(self._say(prompt[:opening]))
        begun = encoded(prompt[opening:].removeprefix("<think>\n") if self._thinks else prompt[opening:])
        if whole[: len(begun)] != begun:
            raise EngineError(f"it would have said {decoded(whole)!r}, not {decoded(begun)!r}")
        rest = whole[len(begun) :][: generation.sampling.max_tokens]
        breaks = self.breaks_behind.pop(0) if self.breaks_behind else len(rest) + 1
        for place in range(0, len(rest), self._pieces):
            ids = rest[place : place + self._pieces]
            if place + len(ids) > breaks:
                raise EngineBroke("it broke")
            ended = ids[-1] == IDS[END]
            text = decoded(ids[:-1] if ended else ids)
            logprobs = None
            if generation.sampling.logprobs is not None:
                logprobs = [TokenLogprobs(-0.5, ((id, -0.5),), (said, said)) for id in ids for said in [_said(id)]]
            yield Chunk(ids, None, 0, logprobs, text)
        yield Chunk([], Finish.STOP if rest and rest[-1] == IDS[END] else Finish.LENGTH, 0)


def _said(id: int) -> str:
    return "" if id == IDS[END] else decoded([id])
