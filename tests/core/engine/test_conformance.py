"""The engine conformance suite over both wires of vLLM, with a stand-in before the demo engine."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import ClassVar

import pytest

from service.engine.port import Engine
from service.engine.servers.engine import Access
from service.engine.vllm.servers import TokensEndpoint
from tests.support.engine.demo_prompts import LARGE, DemoPrompts
from tests.support.engine.standin import Standin
from tests.support.engine.standing import Standing, standing
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until


class ServersConformance(DemoPrompts):
    """The parts that both share."""

    standin: ClassVar[Callable[[Engine], Standing]]

    @pytest.fixture
    async def server(self) -> AsyncGenerator[Standing, None]:
        from service.features.demo.engine import DemoEngine  # a feature: this file is collected without it, too

        async with standing(self.standin(DemoEngine(LARGE))) as server:
            yield server
            await until(lambda: server.running == 0)

    @pytest.fixture
    async def engine(self, server: Standing) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(server.kind, Access((server.url,)), context_tokens=LARGE.context_tokens)
        await engine.start()
        yield engine
        await engine.close()


class TestVllm(ServersConformance):
    standin = Standin


class TestVllmOverCompletions(ServersConformance):
    standin = partial(Standin, endpoint=TokensEndpoint.COMPLETIONS)
