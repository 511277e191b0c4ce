"""The engine on a real vLLM server, over the endpoint for token ids: the conformance suite, and what it is held to."""

from collections.abc import AsyncGenerator

import pytest

from service.engine.port import EngineRefused, Finish
from service.engine.servers.engine import Access
from service.engine.vllm.servers import Vllm
from service.grammar.tags import content_tag, schema_content
from service.harmony import tokens
from tests.support.engine.held import HELLO, OPENED, ConstraintsHeld, under
from tests.support.engine.hooks import sample
from tests.support.engine.watched import WatchedHttp
from tests.support.vllm.talker import TalkerConformance

pytestmark = pytest.mark.vllm


@pytest.fixture
async def engine(vllm_url: str) -> AsyncGenerator[WatchedHttp, None]:
    engine = WatchedHttp(Vllm(), Access((vllm_url,)))
    await engine.start()
    yield engine
    await engine.close()


class TestConformanceOverGenerate(TalkerConformance):
    pass


class TestConstraintsHeld(ConstraintsHeld):
    async def test_only_the_stop_ids_that_were_asked_for_stop(self, engine: WatchedHttp) -> None:
        stopped = await sample(engine, HELLO, 100)
        assert stopped.tokens[-1] == tokens.RETURN
        went_on = await sample(engine, HELLO, len(stopped.tokens) + 5, stop_ids=(tokens.CALL,))
        assert went_on.finish is Finish.LENGTH
        assert went_on.tokens[: len(stopped.tokens)] == stopped.tokens

    async def test_a_schema_that_the_engine_refuses_is_a_refusal_and_no_failure(self, engine: WatchedHttp) -> None:
        with pytest.raises(EngineRefused):
            await under(engine, content_tag(schema_content({"type": "nothing known"})), OPENED)
