"""The engine conformance suite on a real vLLM server, over the endpoint that is made for token ids."""

from collections.abc import AsyncGenerator

import pytest

from service.engine.servers.engine import Access
from service.engine.vllm.servers import Endpoint, Vllm
from tests.support.engine.watched import WatchedHttp
from tests.support.vllm.talker import TalkerConformance, endpoint_of

pytestmark = pytest.mark.vllm


class TestConformanceOverGenerate(TalkerConformance):
    @pytest.fixture
    async def engine(self, vllm_url: str) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(Vllm(), Access((vllm_url,)))
        await engine.start()
        yield engine
        await engine.close()


async def test_the_endpoint_made_for_token_ids_is_found(vllm_url: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await endpoint_of(vllm_url, caplog) == Endpoint.GENERATE
