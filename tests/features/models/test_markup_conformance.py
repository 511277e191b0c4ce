"""The conformance suite of markups, for every one that is read."""

from typing import ClassVar

from service.features.models.markup.families import FAMILIES, MARKUPS
from tests.support.markup.conformance import MarkupConformance
from tests.support.markup.hooks import Ability


class TestPlain(MarkupConformance):
    family = "plain"
    lacks: ClassVar[dict[Ability, str]] = {
        "reasoning": "all is text",
        "calls": "all is text",
        "constraints": "it has no calls",
    }


class TestThink(MarkupConformance):
    family = "think"
    lacks: ClassVar[dict[Ability, str]] = {"calls": "all but reasoning is text", "constraints": "it has no calls"}


class TestHermes(MarkupConformance):
    family = "hermes"


class TestQwen(MarkupConformance):
    family = "qwen3"


class TestQwenCoder(MarkupConformance):
    family = "qwen3-coder"


class TestGlm(MarkupConformance):
    family = "glm"
    served_like = "qwen-coder"


class TestDeepSeekV3(MarkupConformance):
    family = "deepseek-v3"


class TestDeepSeekV31(MarkupConformance):
    family = "deepseek-v3.1"
    served_like = "deepseek-v3"


class TestDeepSeekV32(MarkupConformance):
    family = "deepseek-v3.2"
    served_like = "qwen-coder"


class TestDeepSeekV4(MarkupConformance):
    family = "deepseek-v4"
    served_like = "qwen-coder"


class TestDeepSeekV41(MarkupConformance):
    family = "deepseek-v4.1"
    served_like = "qwen-coder"


class TestKimi(MarkupConformance):
    family = "kimi-k2"
    served_like = "deepseek-v3"


class TestMiniMax(MarkupConformance):
    family = "minimax-m2"
    served_like = "qwen-coder"


UNTRIED = "that its engines take them was never tried"


class TestMiniMaxM3(MarkupConformance):
    family = "minimax-m3"
    served_like = "qwen-coder"
    lacks: ClassVar[dict[Ability, str]] = {"constraints": UNTRIED}


class TestKimiK3(MarkupConformance):
    family = "kimi-k3"
    lacks: ClassVar[dict[Ability, str]] = {"constraints": UNTRIED, "formats": "its answers stand between marks"}


class TestGemma(MarkupConformance):
    family = "gemma-4"
    lacks: ClassVar[dict[Ability, str]] = {"constraints": UNTRIED}


class TestLlama(MarkupConformance):
    family = "llama-4"
    lacks: ClassVar[dict[Ability, str]] = {
        "reasoning": "all is text",
        "constraints": UNTRIED,
        "text before calls": "a bracket behind text is one",
    }


class TestMistral(MarkupConformance):
    family = "mistral"
    served_like = "deepseek-v3"


class TestSeed(MarkupConformance):
    family = "seed-oss"
    served_like = "qwen-coder"
    lacks: ClassVar[dict[Ability, str]] = {"constraints": UNTRIED}


def test_every_markup_is_held_to_the_suite() -> None:
    tested = {FAMILIES[each.family].markup for each in MarkupConformance.__subclasses__()}
    assert tested == set(MARKUPS)
