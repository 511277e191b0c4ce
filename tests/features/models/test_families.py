"""Which family a model is taken for, what its card says that it writes, and the table in the document of models."""

import msgspec
import pytest

from service.engine.port import FAMILY_NAMES, MarkupTags, Speech
from service.features.models.markup.chat import Chat
from service.features.models.markup.families import FAMILIES, MARKS, ReasoningPlace, family_of
from service.features.models.markup.tags import written_by
from tests.support import ROOT
from tests.support.markup.streams import SPECIAL

NAMES = {
    "Qwen/Qwen3-8B": "qwen3",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder",
    "Qwen/Qwen2.5-7B-Instruct": "hermes",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "hermes",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.1",
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-V4.1": "deepseek-v4.1",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "deepseek-r1-distill",
    "moonshotai/Kimi-K2.6": "kimi-k2",
    "zai-org/GLM-4.5-Air": "glm",
    "zai-org/GLM-5.2": "glm-4.7",
    "MiniMaxAI/MiniMax-M2": "minimax-m2",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed-oss",
    "moonshotai/Kimi-K2.7": "kimi-k2",
    "Qwen/Qwen3.5-4B": "qwen3-coder",
    "Qwen/Qwen3.6-35B-A3B": "qwen3.6",
    "qwen_3.10-coder": "qwen3.6",
    "Qwen/Qwen4-7B": "qwen3.6",
    "Qwen/Qwen-7B-Chat": "plain",
    "Qwen/Qwen-72B": "plain",
    "mistralai/Devstral-Small-2507": "mistral",
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": "plain",
    "ibm-granite/granite-4.0-h-small": "granite-4",
    "ibm-granite/granite-4.2-8b": "granite-4.2",
    "meta-llama/Llama-3.1-8B-Instruct": "plain",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama-4",
    "google/gemma-4-31b-it": "gemma-4",
    "moonshotai/Kimi-K3": "kimi-k3",
    "MiniMaxAI/MiniMax-M3": "minimax-m3",
}


def test_a_model_is_known_by_its_name_or_its_marks() -> None:
    assert {model: family_of(model, ()) for model in NAMES} == NAMES
    marks = {family.name: family.marks for family in FAMILIES.values() if family.marks}
    assert {mark for each in marks.values() for mark in each} <= {*MARKS}
    assert {name: family_of("served", spellings) for name, spellings in marks.items()} == {name: name for name in marks}
    assert family_of("served", ()) == "plain"


@pytest.mark.parametrize(
    ("family", "ending", "options", "inside"),
    [
        ("qwen3", ("<think>", "\n"), {}, True),
        ("qwen3", ("<think>", "\n\n", "</think>", "\n\n"), {}, False),
        ("gemma-4", ("<|channel>", "thought", "\n"), {}, True),
        ("gemma-4", ("<|channel>", "thought", "\n", "<channel|>"), {}, False),
        ("kimi-k3", ("<|open|>", "think", "<|sep|>"), {"thinking": True}, True),
        ("kimi-k3", ("<|open|>", "response", "<|sep|>"), {"thinking": False}, False),
        ("mistral", ("[THINK]",), {}, True),
        ("llama-4", ("\n\n",), {}, False),
    ],
)
def test_a_prompt_that_ends_inside_of_reasoning_is_known_by_the_familys_own_mark(
    family: str, ending: tuple[str, ...], options: dict[str, bool], inside: bool
) -> None:
    chat = Chat(family, SPECIAL, (), {}, b"{}", b"[]", b"[]", b"[]", msgspec.json.encode(options))
    assert chat.thinks([SPECIAL.get(each, 1_000) for each in ("a", *ending)]) == inside
    assert chat.shows_reasoning


def test_a_family_writes_what_its_markup_has() -> None:
    assert written_by(None) == MarkupTags("harmony", reasoning=True, calls=True, held_calls=True)
    assert written_by(Speech("seed-oss")) == MarkupTags("seed", reasoning=True, calls=True, held_calls=False)
    assert written_by(Speech("plain")) == MarkupTags("plain", reasoning=False, calls=False, held_calls=False)
    written = [written_by(Speech(family)) for family in FAMILIES]
    assert not [each.markup for each in written if each.held_calls and not each.calls]


def test_kimi_k3_gets_no_effort_that_its_template_refuses() -> None:
    words = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    found = [FAMILIES["kimi-k3"].effort_option(each)["thinking_effort"] for each in words]
    assert found == ["low", "low", "low", "high", "high", "max", "max"]


def test_the_document_of_models_has_the_table() -> None:
    shown = [
        [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
        for line in (ROOT / "docs" / "models.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert [row[:3] for row in shown] == [
        [family.name, family.markup, WORDS[family.reasoning]] for family in FAMILIES.values()
    ]


WORDS = {
    ReasoningPlace.NONE: "none",
    ReasoningPlace.LEFT_OUT: "left out",
    ReasoningPlace.TEMPLATE: "as the template has it",
    ReasoningPlace.WITH_CALLS: "with every call",
}


def test_settings_may_name_each_family() -> None:
    assert tuple(FAMILIES) == FAMILY_NAMES
