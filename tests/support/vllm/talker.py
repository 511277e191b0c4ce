"""The conformance suite for servers that serve the talker, the toy model of scripts/vllm-cpu.

Its answers are always the same at temperature 0; scripts/talker/README.md lists what it understands.
"""

from collections.abc import Sequence
from typing import ClassVar

from tests.support.engine.conformance import EngineConformance
from tests.support.engine.prompts import prompt, user
from tests.support.vllm.server import CONTEXT_TOKENS


class TalkerConformance(EngineConformance):
    """The suite's hooks."""

    stop_tokens: ClassVar[int] = 60

    def stopping_prompt(self) -> Sequence[int]:
        return prompt(user("Hello!"))

    def long_prompt(self) -> Sequence[int]:
        return prompt(user("Count to 300."))

    def other_long_prompt(self) -> Sequence[int]:
        return prompt(user("Count to 200."))

    def large_prompt(self) -> Sequence[int]:
        return prompt(user("word " * (CONTEXT_TOKENS - 120)))
