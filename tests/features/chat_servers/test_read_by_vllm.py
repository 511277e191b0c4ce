"""Turns as models write them, read by our parsers, by those of a real vLLM 0.32, and by our reader of a server's events
behind these: all three read the same.
"""

import json
import subprocess
from typing import Any

import pytest

from service.engine.port import Chunk
from service.features.chat_servers.answer import ChatAnswer
from service.features.models.markup.by_server import ByServer
from service.features.models.markup.families import MARKUPS
from service.harmony.segments import Segment
from tests.support import ROOT
from tests.support.engine.standin_wire import DONE, event
from tests.support.markup import judge
from tests.support.markup.conformance_reading import TURNS
from tests.support.markup.streams import END, SCHEMAS, SPECIAL, messages_of, parser, segments_of, tokens_of
from tests.support.markup.writing import written

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
PARSERS = {
    "deepseek-v4": ("deepseek_v4", "DeepSeekV4Parser"),
    "deepseek-v4.1": ("deepseek_v41", "DeepSeekV41Parser"),
    "gemma-4": ("gemma4", "Gemma4Parser"),
    "glm": ("glm47_moe", "Glm47MoeParser"),
    "kimi": ("kimi_k2", "KimiK2Parser"),
    "minimax": ("minimax_m2", "MinimaxM2Parser"),
    "mistral": ("mistral", "MistralParser"),
    "qwen-coder": ("qwen3", "Qwen3Parser"),
    "seed": ("seed_oss", "SeedOssParser"),
}
"""Those of its parsers that need no tokenizer of their own, by our markup."""

READ = ("reasoning and an answer", "calls behind reasoning and text")
CASES = [(markup, turn) for markup in PARSERS for turn in READ]

Said = list[tuple[str, Any]]


def tokens(markup: str, turn: str) -> list[Any]:
    marks = [mark for mark in MARKUPS[markup].spellings if mark in SPECIAL]
    return tokens_of(written(markup, TURNS[turn]).removesuffix(END), marks)


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    """What vLLM's parsers say of all cases; to start vLLM for each would take minutes."""
    every = {
        f"{markup}: {turn}": {
            "module": PARSERS[markup][0],
            "parser": PARSERS[markup][1],
            "tokens": tokens(markup, turn),
            "marks": {mark: SPECIAL[mark] for mark in MARKUPS[markup].spellings if mark in SPECIAL},
            "schemas": SCHEMAS,
        }
        for markup, turn in CASES
    }
    done = subprocess.run([PYTHON, judge.__file__], input=json.dumps(every), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def said(segments: list[Segment]) -> Said:
    """Each segment by its recipient and text, stripped as templates do; arguments as values."""
    return [
        (each.to, json.loads(each.text) if each.to.startswith("functions.") else each.text.strip())
        for each in messages_of(segments)
    ]


def said_by_server(deltas: list[Any]) -> Said:
    """The segments that our reader of a server finds in these deltas."""
    answer = ChatAnswer("vLLM", max_tokens=1000, logprobs=None)
    events = [{"choices": [{"index": 0, "delta": each}]} for each in deltas]
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    chunks: list[Chunk] = [chunk for each in (*events, last) for chunk in answer.feed(event(each))]
    chunks += [*answer.feed(DONE), answer.end()]
    reader = ByServer({})
    return said([each for chunk in chunks for each in reader.feed(chunk.tokens, chunk.text)] + reader.end())


@pytest.mark.parametrize(("markup", "turn"), CASES)
def test_a_turn_is_read_as_vllm_reads_it_at_once_and_streamed(markup: str, turn: str, read: dict[str, Any]) -> None:
    theirs = read[f"{markup}: {turn}"]
    ours = said(segments_of(parser(markup), [[each] for each in tokens(markup, turn)]))
    whole = theirs["whole"]
    assert ours == [
        ("analysis", whole["reasoning"].strip()),
        ("final", whole["content"].strip()),
        *((f"functions.{call['name']}", json.loads(call["arguments"])) for call in whole["calls"]),
    ]
    assert said_by_server(theirs["deltas"]) == ours
