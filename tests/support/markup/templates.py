"""Real chat templates, behind the tests' speaker: llama.cpp's, which PyPI has with the source of llama-cpp-python, and
the encoder of DeepSeek V4.1's prompts, which vLLM 0.33 has in Python. Neither is in this repository.

They are rendered as Transformers, and so vLLM, renders them.
"""

import importlib.util
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import SandboxedEnvironment

from service.engine.port import EngineRefused, ModelCard, Speech, Transcript
from service.features.models.markup.families import ENDS, FAMILIES
from service.features.models.speech import speech_of
from tests.support import ROOT
from tests.support.markup.speaker import CONTEXT_TOKENS, IDS, Speaker, encoded
from tests.support.markup.writing import END as WRITTEN_END
from tests.support.markup.writing import WRITING, Turn, written

FOLDER = ROOT / ".venv-templates" / "templates"
VLLM = ROOT / ".venv-templates" / "vllm"
"""The Python of a vLLM that is newer than the one in .venv-vllm."""
DEEPSEEK_41 = "vllm/tokenizers/deepseek_v41_encoding.py"
EOS = "</s>"
TOOL = {
    "type": "function",
    "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
}

Render = Callable[..., str]
"""Makes a prompt of messages, tools and options."""


def refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def template(name: str) -> tuple[str, Render]:
    """The text of a template of llama.cpp's, and what renders it."""
    text = (FOLDER / f"{name}.jinja").read_text()
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, default=list, **{"ensure_ascii": False, **how}
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = datetime(2026, 11, 29).strftime
    return text, environment.from_string(text).render


def deepseek_41() -> tuple[str, Render]:
    """The text of vLLM's encoder, and what makes a prompt by it, as its tokenizer calls it."""
    path = VLLM / DEEPSEEK_41
    spec = importlib.util.spec_from_file_location("deepseek_v41_encoding", path)
    assert spec is not None
    assert spec.loader is not None
    encoder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(encoder)

    def render(messages: list[dict[str, Any]], tools: Any = None, **options: Any) -> str:
        if tools:
            if messages[0]["role"] != "system":
                messages.insert(0, {"role": "system", "content": ""})
            messages[0]["tools"] = tools
        for message in messages:
            for call in message.get("tool_calls") or ():
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        thinking = "thinking" if options.get("thinking", True) else "chat"
        effort = options.get("reasoning_effort") or "high"
        drop = options.get("drop_thinking", True)
        return encoder.encode_messages(messages, thinking_mode=thinking, drop_thinking=drop, reasoning_effort=effort)

    return path.read_text(), render


class TemplateSpeaker(Speaker):
    """A model whose prompts a real template makes, and that says one scripted turn after another, as its family writes
    them: the rest of what the prompt's end has begun, and then the end of a turn as the template has it.

    One id is a character, or one of the marks that the template spells. `read` are the prompts, and `sampled` what was
    said behind each.
    """

    def __init__(self, model: str, text: str, render: Render, turns: Sequence[Turn]) -> None:
        super().__init__("", self._next)
        self._family = ""
        self._name, self._render, self._turns = model, render, iter(turns)
        self.read: list[list[int]] = []
        self.sampled: list[list[int]] = []
        self._marks = [mark for mark in IDS if mark in text or (mark == EOS and "eos_token" in text)]

    async def find_speech(self) -> Speech:
        """Find out how the model speaks, as servers' adapters do."""

        async def pieces(text: str) -> list[tuple[int, str]]:
            return [(IDS[each], each) for each in text.split("\n") if each in self._marks]

        async def written(transcript: Transcript) -> str:
            return self.prompt(transcript)

        speech = await speech_of(pieces, written, self._name)
        self._family, self._markup = speech.family, FAMILIES[speech.family].markup
        self.model = ModelCard("speaker", 0, CONTEXT_TOKENS, speech=speech)
        return speech

    def prompt(self, transcript: Transcript) -> str:
        """The text of a prompt. Servers hand templates arguments as values, and reasoning under both its names."""
        messages: list[dict[str, Any]] = json.loads(transcript.messages.replace(transcript.own.encode(), b""))
        for message in messages:
            if thought := message.get("reasoning_content"):
                message["reasoning"] = thought
                if self._family == "mistral":  # as vLLM and llama.cpp do
                    thinks = {"type": "thinking", "thinking": thought}
                    message["content"] = [thinks, {"type": "text", "text": message["content"]}]
            for call in message.get("tool_calls") or ():
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        tools, options = json.loads(transcript.tools), json.loads(transcript.options)
        try:
            return self._render(
                messages=messages,
                tools=tools or None,
                add_generation_prompt=True,
                bos_token="",
                eos_token=EOS,
                **options,
            )
        except (TemplateError, TypeError) as error:
            raise EngineRefused(str(error)) from error

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        """The ids of a prompt."""
        self.transcripts.append(transcript)
        return self.encoded(self.prompt(transcript))

    def encoded(self, text: str) -> list[int]:
        """The ids of a text."""
        return encoded(text, self._marks)

    def begun(self, prompt: Sequence[int]) -> int:
        """Nothing is gone on with in its middle."""
        return len(prompt)

    def _next(self, prompt: str) -> str:
        """The next turn behind a prompt."""
        turn = next(self._turns)
        said = written(self._markup, turn).removesuffix(WRITTEN_END)
        opening = WRITING[self._markup].think.partition("{}")[0]
        if opening and said.startswith(opening) and prompt.rstrip().endswith(opening.rstrip()):
            said = said.removeprefix(opening)
        said += self._end(bool(turn.calls))
        self.read.append(self.encoded(prompt))
        self.sampled.append(self.encoded(said))
        return said

    def _end(self, calls: bool) -> str:
        """The mark that ends a turn: the first one that the template writes behind it."""
        function = {"name": "now", "arguments": '{"at": "SAID"}'}
        told = {"tool_calls": [{"id": "000000000", "type": "function", "function": function}]} if calls else {}
        behind = (
            {"role": "tool", "tool_call_id": "000000000", "content": ""} if calls else {"role": "user", "content": ""}
        )
        said = {"role": "assistant", "content": "" if calls else "SAID", **told}
        messages = json.dumps([{"role": "user", "content": ""}, said, behind]).encode()
        text = self.prompt(Transcript(messages, json.dumps([TOOL]).encode()))
        text = text.rpartition("SAID")[2]
        return min((mark for mark in ENDS if mark in text), key=text.index)
