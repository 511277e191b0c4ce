"""Conversations of twenty turns with calls through the real templates of models, by the service's own requests: each
prompt begins with all ids of the one before it and those that were sampled behind that. Where a template prevents it,
docs/models.md says so.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from service.process import Settings
from tests.support import ROOT
from tests.support.markup.templates import TemplateSpeaker, deepseek_41, template
from tests.support.markup.writing import Turn
from tests.support.service.inside import serving

TURNS = 20
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}


REASONING = "no reasoning before the last question"


class Judged(NamedTuple):
    """A model, its family, whether it reasons, and how its template writes earlier turns otherwise, where it does."""

    model: str
    family: str
    reasons: bool = True
    prevents: str = ""


TEMPLATES = {
    "Kimi-K3": Judged("Kimi-K3", "kimi-k3"),
    "Kimi-K2-Thinking": Judged("Kimi-K2-Thinking", "kimi-k2"),
    "Kimi-K2-Instruct": Judged("Kimi-K2-Instruct", "kimi-k2", reasons=False),
    "deepseek-v41": Judged("DeepSeek-V4.1", "deepseek-v4.1"),
    "deepseek-ai-DeepSeek-V4": Judged("DeepSeek-V4", "deepseek-v4"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": Judged("DeepSeek-V4-Flash", "deepseek-v4"),
    "deepseek-ai-DeepSeek-V3.2": Judged("DeepSeek-V3.2", "deepseek-v3.2", prevents=REASONING),
    "deepseek-ai-DeepSeek-V3.1": Judged("DeepSeek-V3.1", "deepseek-v3.1", prevents=REASONING),
    "llama-cpp-deepseek-r1": Judged("DeepSeek-R1", "deepseek-r1", prevents=REASONING),
    "GLM-4.7-Flash": Judged("GLM-4.7-Flash", "glm-4.7"),
    "GLM-4.6": Judged("GLM-4.6", "glm"),
    "MiniMax-M3": Judged("MiniMax-M3", "minimax-m3"),
    "MiniMax-M2": Judged("MiniMax-M2", "minimax-m2", prevents=REASONING),
    "google-gemma-4-31B-it": Judged("gemma-4-31b-it", "gemma-4", prevents=REASONING),
    "ByteDance-Seed-OSS": Judged("Seed-OSS-36B-Instruct", "seed-oss"),
    "mistralai-Ministral-3-14B-Reasoning-2512": Judged("Ministral-3-14B-Reasoning-2512", "mistral"),
    "Mistral-Small-3.2-24B-Instruct-2506": Judged("Mistral-Small-3.2-24B-Instruct", "mistral", False, "the tools move"),
    "unsloth-mistral-Devstral-Small-2507": Judged("Devstral-Small-2507", "mistral", reasons=False),
    "ibm-granite-granite-4.0": Judged("granite-4.0-h-small", "granite-4", reasons=False),
    "ibm-granite-granite-4.1": Judged("granite-4.1-8b", "granite-4", reasons=False),
    "Qwen3-Coder": Judged("Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder", reasons=False),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": Judged("Nemotron-3-Nano-30B-A3B", "qwen3-coder"),
    "Qwen3.5-4B": Judged("Qwen3.5-4B", "qwen3-coder", prevents=REASONING),
    "StepFun3.5-Flash": Judged("Step-3.5-Flash", "qwen3-coder", prevents=REASONING),
    "Qwen-Qwen3-0.6B": Judged("Qwen3-0.6B", "qwen3", prevents=REASONING),
    "Qwen-QwQ-32B": Judged("QwQ-32B", "qwen3", prevents=REASONING),
    "Qwen-Qwen2.5-7B-Instruct": Judged("Qwen2.5-7B-Instruct", "hermes", reasons=False),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": Judged("Hermes-3-Llama-3.1-8B", "hermes", False, "outputs change"),
}


def conversation(judged: Judged) -> list[Turn]:
    """The model's turns: alternately one call or two, and an answer."""
    turns: list[Turn] = []
    for number in range(0, TURNS, 2):
        call = ("get_weather", {"city": "S\u00e3o Paulo (1)", "days": number})
        turns.append(
            Turn("I look." if judged.reasons else "", "Wait." if number % 3 else "", [call, call][number % 4 // 2 :])
        )
        turns.append(Turn("I saw it." if judged.reasons else "", f"It is {number}.", []))
    return turns


@pytest.mark.vllm
@pytest.mark.parametrize("name", TEMPLATES)
async def test_each_prompt_begins_with_all_that_was_read_and_sampled(settings: Settings, name: str) -> None:
    judged = TEMPLATES[name]
    text, render = deepseek_41() if name == "deepseek-v41" else template(name)
    turns = conversation(judged)
    speaker = TemplateSpeaker(judged.model, text, render, turns)
    assert (await speaker.find_speech()).family == judged.family
    said: Any = "Hello!"
    before = None
    async with serving(settings, speaker) as service, service.client() as client:
        for turn in turns:
            how: Any = {"tools": [WEATHER], "instructions": "Be kind.", "previous_response_id": before}
            response = await client.responses.create(model="speaker", input=said, **how)
            calls = [item for item in response.output if item.type == "function_call"]
            assert (len(calls), response.output_text) == (len(turn.calls), turn.text)
            assert response.output[0].type == "reasoning" or not judged.reasons
            said = [
                {"type": "function_call_output", "call_id": call.call_id, "output": "18"} for call in calls
            ] or "And?"
            before = response.id
    kept = [
        after[: len(prompt) + len(answer)] == [*prompt, *answer]
        for (prompt, answer), (after, _) in pairwise(zip(speaker.read, speaker.sampled, strict=True))
    ]
    assert all(kept) == (not judged.prevents), kept


def test_the_document_says_which_template_keeps_them() -> None:
    document = (ROOT / "docs" / "models.md").read_text()
    shown = {line.split("`")[1]: line.split(" | ")[6] for line in document.splitlines() if line.startswith("| `")}
    judged: dict[str, list[str]] = {}
    for name, each in TEMPLATES.items():
        judged.setdefault(each.family, []).append(f"{name}: {each.prevents}" if each.prevents else name)
    assert {name: cell.split("; ") for name, cell in shown.items() if cell} == judged
