"""The engine on a real llama.cpp server: the conformance suite, of which it lacks nothing, and what it is held to."""

from collections.abc import AsyncGenerator

import pytest

from service.engine.port import Finish
from service.engine.servers.engine import Access
from service.features.llama.servers import Llama
from service.grammar.tags import HeaderState, addressing_tag, content_tag, regex_content
from service.harmony import tokens
from tests.support.engine.held import HELLO, OPENED, ConstraintsHeld, of_schema, under
from tests.support.engine.watched import WatchedHttp
from tests.support.llama.talker import KEY
from tests.support.vllm.talker import TalkerConformance


@pytest.fixture
async def engine(llama_url: str) -> AsyncGenerator[WatchedHttp, None]:
    engine = WatchedHttp(Llama(shared=False), Access((llama_url,), api_key=KEY, connect_seconds=30))
    await engine.start()
    yield engine
    await engine.close()


class TestConformance(TalkerConformance):
    pass


class TestConstraintsHeld(ConstraintsHeld):
    @pytest.mark.parametrize(
        "content",
        [
            regex_content("[a-z<|> ]{1,40}!"),
            of_schema({"type": "object", "properties": {"a": {"type": "string", "maxLength": 60}}, "required": ["a"]}),
        ],
    )
    async def test_no_mark_is_sampled_as_text(self, engine: WatchedHttp, content: str) -> None:
        sampled = await under(engine, content_tag(content), OPENED)
        assert sampled.finish is Finish.STOP
        assert max(sampled.tokens[:-1]) < tokens.FIRST_SPECIAL

    async def test_a_message_before_a_call_has_no_mark_but_its_end(self, engine: WatchedHttp) -> None:
        sampled = await under(engine, addressing_tag(("functions.f",), (), False, HeaderState.NEXT), HELLO)
        marks = [each for each in sampled.tokens if each >= tokens.FIRST_SPECIAL]
        message = [tokens.CHANNEL, tokens.MESSAGE]
        *asides, last = " ".join(map(str, marks)).split(f" {tokens.END} {tokens.START} ")
        assert all(aside == " ".join(map(str, message)) for aside in asides)
        assert last.split()[-1] in map(str, tokens.STOPS)
