"""The engine conformance suite over SGLang's wire, in both of its forms. It lacks nothing."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from service.engine.demo import DemoEngine
from service.engine.port import ModelCard
from service.engine.servers.engine import Access
from tests.support.engine.conformance import EngineConformance
from tests.support.engine.prompts import prompt, user
from tests.support.engine.watched import WatchedHttp
from tests.support.sglang.standin import SglangStandin, sglang
from tests.support.waiting import until

LARGE = ModelCard("gpt-oss-20b", 0, 131_072)


class SglangConformance(EngineConformance):
    incremental: bool

    @pytest.fixture
    async def server(self) -> AsyncGenerator[SglangStandin, None]:
        async with sglang(DemoEngine(LARGE), incremental=self.incremental, hang_up_seconds=0.2) as server:
            yield server
            await until(lambda: server.running == 0)

    @pytest.fixture
    async def engine(self, server: SglangStandin) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(server.kind, Access((server.url,)))
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


class TestConformance(SglangConformance):
    incremental = True


class TestConformanceOfRepeatedLists(SglangConformance):
    incremental = False
