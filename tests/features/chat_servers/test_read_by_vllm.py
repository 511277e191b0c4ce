"""Turns as models write them, read by our parsers, by those of vLLM 0.33 as its flags choose them, and by our reader of
a server's events behind these: all three read the same.
"""

import json
import os
import random
import subprocess
from typing import Any

import pytest

from service.engine.port import Chunk
from service.features.chat_servers.answer import ChatAnswer
from service.features.models.markup.by_server import ByServer
from service.features.models.markup.families import FAMILIES, MARKUPS, ReasoningPlace
from service.harmony.segments import Segment
from tests.support import ROOT
from tests.support.engine.standin_wire import DONE, event
from tests.support.markup import judge
from tests.support.markup.conformance_reading import TURNS
from tests.support.markup.streams import END, SCHEMAS, SPECIAL, messages_of, parser, segments_of, tokens_of
from tests.support.markup.templates import VLLM
from tests.support.markup.transcripts import DOCUMENTED
from tests.support.markup.writing import Turn, draw_turn, written

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"

RECORDED = ROOT / "tests" / "features" / "models" / "vllm_readings.json"

FLAGS = {
    "kimi-k3": ("kimi_k3", "kimi_k3"),
    "kimi-k2": ("kimi_k2", "kimi_k2"),
    "deepseek-v4.1": ("deepseek_v41", "deepseek_v41"),
    "deepseek-v4": ("deepseek_v4", "deepseek_v4"),
    "deepseek-v3.2": ("deepseek_v32", "deepseek_v3"),
    "deepseek-v3.1": ("deepseek_v31", "deepseek_v3"),
    "deepseek-r1": ("deepseek_v3", "deepseek_r1"),
    "deepseek-v3": ("deepseek_v3", ""),
    "deepseek-r1-distill": ("", "deepseek_r1"),
    "glm-4.7": ("glm47", "glm47"),
    "glm": ("glm45", "glm45"),
    "minimax-m3": ("minimax_m3", "minimax_m3"),
    "minimax-m2": ("minimax_m2", "minimax_m2"),
    "gemma-4": ("gemma4", "gemma4"),
    "llama-4": ("llama4_pythonic", ""),
    "seed-oss": ("seed_oss", "seed_oss"),
    "mistral": ("mistral", "mistral"),
    "granite-4.2": ("qwen3_coder", "granite_thinking_parser"),
    "granite-4": ("granite4", ""),
    "qwen3.6": ("qwen3_coder", "qwen3"),
    "qwen3-coder": ("qwen3_coder", "qwen3"),
    "qwen3": ("hermes", "qwen3"),
    "hermes": ("hermes", ""),
}
"""What `--tool-call-parser` and `--reasoning-parser` are given for a family."""

ALWAYS_REASON = {"deepseek-r1", "deepseek-r1-distill", "minimax-m2"}
"""Their parsers take text without a mark for reasoning."""

DRAWN = 40
"""How many turns are drawn for each family."""

Said = list[tuple[str, Any]]


def able(family: str, turn: Turn) -> Turn:
    """As much of a turn as the family can say; text behind calls, which vLLM drops, is left out."""
    calls = turn.calls if MARKUPS[FAMILIES[family].markup].call else ()
    reasons = FAMILIES[family].reasoning is not ReasoningPlace.NONE
    reasoning = (turn.reasoning or ("Hm." if family in ALWAYS_REASON else "")) if reasons else ""
    text = "" if calls and family == "llama-4" else turn.text or ("" if calls else "Yes.")
    return Turn(reasoning, text, calls)


def turns(family: str) -> dict[str, Turn]:
    drawn = {f"drawn {seed}": draw_turn(random.Random(seed), ["get_weather"]) for seed in range(DRAWN)}
    return {name: able(family, turn) for name, turn in (TURNS | drawn).items()}


def case(family: str, text: str, *, thinks: bool) -> dict[str, Any]:
    """A stream for the judge."""
    spellings = [mark for mark in MARKUPS[FAMILIES[family].markup].spellings if mark in SPECIAL]
    calls, reasoning = FLAGS[family]
    return {
        "calls": calls,
        "reasoning": reasoning,
        "tokens": tokens_of(text.removesuffix(END), spellings),
        "marks": {mark: SPECIAL[mark] for mark in spellings},
        "schemas": SCHEMAS,
        "options": {"thinking": thinks, "enable_thinking": thinks},
    }


FAMILY_OF = {markup: name for name in reversed(FLAGS) for markup in (FAMILIES[name].markup,)} | {
    "deepseek-v3": "deepseek-v3"
}
"""The family as which what is documented of a markup is judged."""

CASES = {
    f"{family}: {name}": case(family, written(FAMILIES[family].markup, turn), thinks=bool(turn.reasoning))
    for family in FLAGS
    for name, turn in turns(family).items()
} | {
    name: case(FAMILY_OF[each.markup], each.text, thinks=each.thinking or "think>" in each.text)
    for name, each in DOCUMENTED.items()
}


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    """What vLLM's parsers say of all cases; to start vLLM for each would take minutes."""
    environment = {**os.environ, "PYTHONPATH": str(VLLM)}
    done = subprocess.run(
        [PYTHON, judge.__file__], input=json.dumps(CASES), env=environment, capture_output=True, text=True, check=True
    )
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


def said_at_once(whole: Any) -> Said:
    """The segments of what vLLM reads at once."""
    texts = [("analysis", whole["reasoning"].strip()), ("final", whole["content"].strip())]
    calls = [(f"functions.{call['name']}", json.loads(call["arguments"])) for call in whole["calls"]]
    return [*((to, text) for to, text in texts if text or (to == "final" and not calls)), *calls]


def without_line_breaks(said: Said) -> Said:
    """The same without line breaks around values: vLLM drops some for Seed, whose template writes none."""
    return [
        (to, {key: each.strip("\n") if isinstance(each, str) else each for key, each in what.items()})
        if isinstance(what, dict)
        else (to, what)
        for to, what in said
    ]


@pytest.mark.parametrize("family", FLAGS)
def test_turns_are_read_as_vllm_reads_them_at_once_and_streamed(family: str, read: dict[str, Any]) -> None:
    for name in turns(family):
        theirs = read[f"{family}: {name}"]
        tokens = CASES[f"{family}: {name}"]["tokens"]
        ours = said(segments_of(parser(FAMILIES[family].markup), [[each] for each in tokens]))
        readings = [ours, said_at_once(theirs["whole"]), said_by_server(theirs["deltas"])]
        if family == "seed-oss":
            readings = [*map(without_line_breaks, readings)]
        assert readings[0] == readings[1], name
        assert readings[0] == readings[2], name


def test_what_was_recorded_of_documented_turns_is_what_vllm_reads(read: dict[str, Any]) -> None:
    assert {name: read[name]["whole"] for name in DOCUMENTED} == json.loads(RECORDED.read_text())
