"""The engine conformance suite over the wires of servers, each of which is a stand-in before the demo engine."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from service.engine.demo import DemoEngine
from service.engine.port import Engine
from service.engine.servers.engine import Access
from service.engine.vllm.servers import Endpoint
from tests.support.engine.conformance import Ability
from tests.support.engine.demo_prompts import LARGE, DemoPrompts
from tests.support.engine.standin import Standin
from tests.support.engine.standing import Standing, standing
from tests.support.engine.watched import WatchedHttp
from tests.support.sglang.standin import SglangStandin
from tests.support.tensorrt.standin import TensorrtStandin
from tests.support.waiting import until


class ServersConformance(DemoPrompts):
    """The parts that all kinds share."""

    standin: ClassVar[Callable[[Engine], Standing]]
    traits: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    async def server(self) -> AsyncGenerator[Standing, None]:
        async with standing(self.standin(DemoEngine(LARGE)), **self.traits) as server:
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
    standin = partial(Standin, endpoint=Endpoint.COMPLETIONS)


class TestSglang(ServersConformance):
    standin = SglangStandin
    traits: ClassVar[dict[str, Any]] = {"hang_up_seconds": 0.2}


class TestTensorrt(ServersConformance):
    standin = TensorrtStandin
    lacks: ClassVar[dict[Ability, str]] = {
        "logprobs": "it names tokens by their text",
        "prefix cache": "it has no salts; experimental/test_tensorrt_servers.py has what becomes of them",
    }
