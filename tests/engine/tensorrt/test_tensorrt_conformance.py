"""The engine conformance suite over TensorRT-LLM's wire, with what that lacks."""

from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

import pytest

from service.engine.demo import DemoEngine
from service.engine.port import ModelCard
from service.engine.servers.engine import Access
from tests.support.engine.conformance import Ability, EngineConformance
from tests.support.engine.prompts import prompt, user
from tests.support.engine.watched import WatchedHttp
from tests.support.tensorrt.standin import TensorrtStandin, tensorrt
from tests.support.waiting import until

LARGE = ModelCard("gpt-oss-20b", 0, 131_072)


class TestConformance(EngineConformance):
    lacks: ClassVar[dict[Ability, str]] = {
        "logprobs": "it names tokens by their text",
        "prefix cache": "it has no salts; test_tensorrt_servers.py has what becomes of them",
    }

    @pytest.fixture
    async def server(self) -> AsyncGenerator[TensorrtStandin, None]:
        async with tensorrt(DemoEngine(LARGE)) as server:
            yield server
            await until(lambda: server.running == 0)

    @pytest.fixture
    async def engine(self, server: TensorrtStandin) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(server.kind, Access((server.url,)), context_tokens=LARGE.context_tokens)
        await engine.start()
        yield engine
        await engine.close()

    def stopping_prompt(self) -> Sequence[int]:
        return prompt(user("hello"))

    def long_prompt(self) -> Sequence[int]:
        return prompt(user("count to 100000"))

    def other_long_prompt(self) -> Sequence[int]:
        return prompt(user("Write a story of at least 50000 words."))

    def large_prompt(self) -> Sequence[int]:
        return prompt(user("my word " * 59_000), user("what is my zebra?"))
