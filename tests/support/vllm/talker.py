"""The conformance suite for servers that serve the talker, the toy model of scripts/vllm-cpu.

Its answers are always the same at temperature 0; scripts/talker/README.md lists what it understands. Which endpoint an
engine found is read from what it logs.
"""

import logging
from collections.abc import Sequence
from typing import ClassVar

import pytest

from service.engine.servers.engine import Access, ServersEngine
from service.engine.vllm.servers import Vllm
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


async def endpoint_of(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """The endpoint that an engine finds at a server, from what it logs when it comes up."""
    caplog.set_level(logging.INFO)
    engine = ServersEngine(Vllm(), Access((url,)))
    await engine.start()
    await engine.close()
    return found(caplog)[-1]


def found(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The endpoints that were logged, one each time that a server came up."""
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    return [each["endpoint"] for each in fields if "endpoint" in each]
