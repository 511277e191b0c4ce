"""The engine conformance suite on a real llama.cpp server. It lacks nothing."""

from collections.abc import AsyncGenerator

import pytest

from service.engine.llama.servers import Llama
from service.engine.servers.engine import Access
from tests.support.engine.watched import WatchedHttp
from tests.support.llama.talker import KEY
from tests.support.vllm.talker import TalkerConformance


class TestConformance(TalkerConformance):
    @pytest.fixture
    async def engine(self, llama_url: str) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(Llama(shared=False), Access((llama_url,), api_key=KEY, connect_seconds=30))
        await engine.start()
        yield engine
        await engine.close()
