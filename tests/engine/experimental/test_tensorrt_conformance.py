"""The engine conformance suite over TensorRT-LLM's wire, with what that lacks."""

from collections.abc import AsyncGenerator
from typing import ClassVar

import pytest

from service.engine.demo import DemoEngine
from service.engine.servers.engine import Access
from tests.support.engine.conformance import Ability
from tests.support.engine.demo_prompts import LARGE, DemoPrompts
from tests.support.engine.watched import WatchedHttp
from tests.support.tensorrt.standin import TensorrtStandin, tensorrt
from tests.support.waiting import until


class TestConformance(DemoPrompts):
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
