"""What the demo engine answers as the conformance suite needs it, be it asked at once or behind a server's wire; and
every parameter of sampling set to something else than its default.
"""

from array import array
from collections.abc import Sequence

from service.engine.port import ModelCard, Sampling
from service.harmony.tokens import STOPS
from tests.support.engine.conformance import EngineConformance
from tests.support.engine.prompts import prompt, user

LARGE = ModelCard("gpt-oss-20b", 0, 131_072)

ALL_SET = Sampling(
    max_tokens=11, temperature=0.5, top_p=0.25, stop_ids=STOPS, top_k=7, min_p=0.125, presence_penalty=1.5,
    frequency_penalty=-1.5, repetition_penalty=1.25, seed=42, logprobs=3,
)  # fmt: skip


class DemoPrompts(EngineConformance):
    """The suite's hooks."""

    def stopping_prompt(self) -> Sequence[int]:
        return prompt(user("hello"))

    def long_prompt(self) -> Sequence[int]:
        return array("I", prompt(user("count to 100000")))

    def other_long_prompt(self) -> Sequence[int]:
        return prompt(user("Write a story of at least 50000 words."))

    def large_prompt(self) -> Sequence[int]:
        return prompt(user("my word " * 59_000), user("what is my zebra?"))
