"""The engine conformance suite over SGLang's wire. It lacks nothing."""

from collections.abc import AsyncGenerator

import pytest

from service.engine.demo import DemoEngine
from service.engine.servers.engine import Access
from tests.support.engine.demo_prompts import LARGE, DemoPrompts
from tests.support.engine.watched import WatchedHttp
from tests.support.sglang.standin import SglangStandin, sglang
from tests.support.waiting import until


class TestConformance(DemoPrompts):
    @pytest.fixture
    async def server(self) -> AsyncGenerator[SglangStandin, None]:
        async with sglang(DemoEngine(LARGE), hang_up_seconds=0.2) as server:
            yield server
            await until(lambda: server.running == 0)

    @pytest.fixture
    async def engine(self, server: SglangStandin) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(server.kind, Access((server.url,)))
        await engine.start()
        yield engine
        await engine.close()
