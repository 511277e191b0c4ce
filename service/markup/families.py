"""The families of models: their markups, and how their templates treat earlier reasoning.

The one table of it; docs/models.md shows it, with the models that were tried. A model is recognised by its name, and
where that says nothing by the marks that are single tokens of its vocabulary. Any other model is read as plain text, or
with its reasoning taken out where it has marks for that.
"""

import re
from collections.abc import Collection
from enum import Enum

import msgspec

from service.markup.speech import SERVER


class Reasoning(Enum):
    """The place of a turn's reasoning in the prompts of later turns."""

    NONE = "none"
    """The family doesn't reason."""
    LEFT_OUT = "left out"
    """It must not be passed: the model was trained without, or its API refuses it."""
    TEMPLATE = "template"
    """It is passed, and the template writes or drops it: most drop it before the last words of the user."""
    WITH_CALLS = "with calls"
    """It must be passed with every turn that called something, also before the last words of the user."""


class Family(msgspec.Struct, frozen=True):
    """One row: how it is recognised (`names`, a regex searched in the model's name in any case; `marks`, of which each
    is one token), its markup, and the source that says so.
    """

    name: str
    markup: str
    reasoning: Reasoning
    names: str
    marks: tuple[str, ...]
    source: str


_BAR, _LOW = "\uff5c", "\u2581"
_DSML = f"{_BAR}DSML{_BAR}"
_DEEPSEEK_CALLS = f"<{_BAR}tool{_LOW}calls{_LOW}begin{_BAR}>"
_KIMI_CALLS = "<|tool_calls_section_begin|>"

MARKS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *(f"<{_BAR}tool{_LOW}{word}{_BAR}>" for word in (f"calls{_LOW}begin", f"calls{_LOW}end", f"call{_LOW}begin")),
    *(f"<{_BAR}tool{_LOW}{word}{_BAR}>" for word in (f"call{_LOW}end", "sep")),
    *(_KIMI_CALLS, "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
    *("<|tool_call_end|>", "<minimax:tool_call>", "</minimax:tool_call>"),
    *("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
)
"""All marks that some vocabulary has as one token."""

ENDS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "</s>"),
    *(f"<{_BAR}end{_LOW}of{_LOW}sentence{_BAR}>", "<|user|>", "<|observation|>", "[EOS]", "[e~[", "<seed:eos>"),
    *("<|end|>", "<|return|>", "<|end_of_role|>", "<turn|>", "<|eos|>", "<eos>"),
)
"""The special tokens that end a model's turn. In ordinary tokens they are text."""

FAMILIES = {
    family.name: family
    for family in (
        Family(
            "kimi-k2",
            "kimi",
            Reasoning.WITH_CALLS,
            r"kimi[-_ ]?k2",
            (_KIMI_CALLS,),
            "moonshotai/Kimi-K2-Instruct-0905, docs/tool_call_guidance.md; huggingface/chat-ui #2470",
        ),
        Family(
            "deepseek-v4.1",
            "deepseek-v4.1",
            Reasoning.WITH_CALLS,
            r"deepseek[-_ ]?v4\.1",
            (),
            "vLLM 0.32, parser/deepseek_v41.py",
        ),
        Family(
            "deepseek-v4",
            "deepseek-v4",
            Reasoning.WITH_CALLS,
            r"deepseek[-_ ]?v4",
            (),
            "vLLM 0.32, parser/deepseek_v4.py; DeepSeek's docs, Thinking Mode: a 400 without it",
        ),
        Family(
            "deepseek-v3.2",
            "deepseek-v3.2",
            Reasoning.WITH_CALLS,
            r"deepseek[-_ ]?v3\.2(?!-exp)",
            (_DSML,),
            "deepseek-ai/DeepSeek-V3.2, encoding/encoding_dsv32.py; DeepSeek's docs, Thinking Mode",
        ),
        Family(
            "deepseek-v3.1",
            "deepseek-v3.1",
            Reasoning.LEFT_OUT,
            r"deepseek[-_ ]?v3\.(?:1|2-exp)",
            (),
            "deepseek-ai/DeepSeek-V3.1, README: ToolCall",
        ),
        Family(
            "deepseek-r1",
            "deepseek-v3",
            Reasoning.LEFT_OUT,
            r"deepseek[-_ ]?r1(?!.*distill)",
            (),
            "deepseek-ai/DeepSeek-R1, chat template; DeepSeek's API: a 400 with it",
        ),
        Family(
            "deepseek-v3",
            "deepseek-v3",
            Reasoning.NONE,
            r"deepseek[-_ ]?v3",
            (_DEEPSEEK_CALLS,),
            "deepseek-ai/DeepSeek-V3-0324, chat template",
        ),
        Family(
            "deepseek-r1-distill",
            "think",
            Reasoning.LEFT_OUT,
            r"deepseek[-_ ]?r1.*distill",
            (),
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B, chat template",
        ),
        Family(
            "glm-4.7",
            "glm",
            Reasoning.WITH_CALLS,
            r"glm[-_ ]?(?:4\.[7-9]|5)",
            (),
            "Z.ai's docs, Thinking Mode; huggingface/chat-ui #2470",
        ),
        Family(
            "glm",
            "glm",
            Reasoning.TEMPLATE,
            r"glm[-_ ]?4\.[56]",
            ("<tool_call>", "<arg_key>"),
            "zai-org/GLM-4.5, chat_template.jinja",
        ),
        Family(
            "minimax-m2",
            "minimax",
            Reasoning.WITH_CALLS,
            r"minimax[-_ ]?m2",
            ("<minimax:tool_call>",),
            "MiniMaxAI/MiniMax-M2, docs/tool_calling_guide.md; MiniMax's docs, Tool Use",
        ),
        Family(
            "seed-oss",
            "seed",
            Reasoning.TEMPLATE,
            r"seed[-_ ]?oss",
            ("<seed:tool_call>",),
            "ByteDance-Seed/Seed-OSS-36B-Instruct, chat_template.jinja",
        ),
        Family(
            "qwen3-coder",
            "qwen-coder",
            Reasoning.TEMPLATE,
            r"qwen[-_ ]?3(?:\.[5-9]|[-_ ]?coder)|nemotron[-_ ]?(?:v?3)|step[-_ ]?3\.5",
            (),
            "Qwen/Qwen3-Coder-480B-A35B-Instruct, chat_template.jinja",
        ),
        Family(
            "qwen3",
            "qwen",
            Reasoning.TEMPLATE,
            r"qwen[-_ ]?3|qwq",
            ("<tool_call>", "<think>"),
            "Qwen/Qwen3-8B, chat template",
        ),
        Family(
            "hermes",
            "hermes",
            Reasoning.NONE,
            r"hermes|qwen[-_ ]?2|smollm",
            ("<tool_call>",),
            "NousResearch/Hermes-2-Pro-Llama-3-8B, model card; Qwen/Qwen2.5-7B-Instruct, chat template",
        ),
        Family("server", SERVER, Reasoning.TEMPLATE, "", (), "the server, by its own parser; only where it is named"),
        Family("think", "think", Reasoning.TEMPLATE, "", ("<think>",), "any template that writes its marks"),
        Family("plain", "plain", Reasoning.NONE, "", (), "anything else: its text is the answer"),
    )
}
"""Every family by its name, in the order in which they are tried."""


def family_of(model: str, marks: Collection[str]) -> str:
    """The name of a model's family, by the model's name, or by those of MARKS that are one token of it."""
    for family in FAMILIES.values():
        if family.names and re.search(family.names, model, re.IGNORECASE):
            return family.name
    return next(
        family.name
        for family in FAMILIES.values()
        if family.name == "plain" or (family.marks and all(mark in marks for mark in family.marks))
    )
