"""The engine conformance suite over both wires of vLLM, with a stand-in before the tests' own engine."""

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import ClassVar

import pytest

from service.engine.port import Engine
from service.engine.servers.engine import Access
from service.engine.vllm.servers import TokensEndpoint
from tests.support.engine.conformance import EngineConformance
from tests.support.engine.demo_prompts import LARGE
from tests.support.engine.prompts import prompt, user
from tests.support.engine.standin import Standin
from tests.support.engine.standing import Standing, standing
from tests.support.engine.talking import TalkingEngine
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until


class ServersConformance(EngineConformance):
    """The parts that both share."""

    standin: ClassVar[Callable[[Engine], Standing]]

    @pytest.fixture
    async def server(self) -> AsyncGenerator[Standing, None]:
        async with standing(self.standin(TalkingEngine(LARGE))) as server:
            yield server
            await until(lambda: server.running == 0)

    @pytest.fixture
    async def engine(self, server: Standing) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(server.kind, Access((server.url,)), context_tokens=LARGE.context_tokens)
        await engine.start()
        yield engine
        await engine.close()

    def stopping_prompt(self) -> Sequence[int]:
        return prompt(user("hello"))

    def long_prompt(self) -> Sequence[int]:
        return prompt(user("count to 100000"))

    def other_long_prompt(self) -> Sequence[int]:
        return prompt(user("Once more, count to 100000."))

    def large_prompt(self) -> Sequence[int]:
        return prompt(user("my word " * 59_000), user("Hello?"))


class TestVllm(ServersConformance):
    standin = Standin


class TestVllmOverCompletions(ServersConformance):
    standin = partial(Standin, endpoint=TokensEndpoint.COMPLETIONS)
