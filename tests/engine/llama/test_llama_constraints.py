"""What is asked of an answer, held by a real llama.cpp; and what GBNF would let through that isn't text."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from service.engine.llama.grammar import constraint
from service.engine.llama.servers import Llama
from service.engine.port import Finish
from service.engine.servers.engine import Access, ServersEngine
from service.grammar.tags import HeaderState, addressing_tag, content_tag, regex_content
from service.harmony import tokens
from tests.support.engine.held import HELLO, OPENED, ConstraintsHeld, of_schema, under
from tests.support.llama.talker import KEY


class TestConstraintsHeld(ConstraintsHeld):
    @pytest.fixture
    async def engine(self, llama_url: str) -> AsyncGenerator[ServersEngine, None]:
        engine = ServersEngine(Llama(shared=False), Access((llama_url,), api_key=KEY, connect_seconds=30))
        await engine.start()
        yield engine
        await engine.close()

    @pytest.mark.parametrize(
        "content",
        [
            regex_content("[a-z<|> ]{1,40}!"),
            of_schema({"type": "object", "properties": {"a": {"type": "string", "maxLength": 60}}, "required": ["a"]}),
        ],
    )
    async def test_no_mark_is_sampled_as_text(self, engine: ServersEngine, content: str) -> None:
        sampled = await under(engine, content_tag(content), OPENED)
        assert sampled.finish is Finish.STOP
        assert max(sampled.tokens[:-1]) < tokens.FIRST_SPECIAL

    async def test_a_message_before_a_call_has_no_mark_but_its_end(self, engine: ServersEngine) -> None:
        sampled = await under(engine, addressing_tag(("functions.f",), (), False, HeaderState.NEXT), HELLO)
        marks = [each for each in sampled.tokens if each >= tokens.FIRST_SPECIAL]
        message = [tokens.CHANNEL, tokens.MESSAGE]
        *asides, last = " ".join(map(str, marks)).split(f" {tokens.END} {tokens.START} ")
        assert all(aside == " ".join(map(str, message)) for aside in asides)
        assert last.split()[-1] in map(str, tokens.STOPS)


@pytest.mark.parametrize(
    "tag",
    [
        "{",
        "[]",
        "{}",
        '{"format":{"type":"unheard"}}',
        '{"format":{"type":"sequence"}}',
        '{"format":{"type":"sequence","elements":[5]}}',
        '{"format":{"type":"token","token":"x"}}',
        '{"format":{"type":"json_schema"}}',
        '{"format":{"type":"regex","pattern":"("}}',
        '{"format":{"type":"regex","pattern":"(?=a)"}}',
        '{"format":{"type":"const_string"}}',
        '{"format":' + '{"type":"optional","content":' * 3000 + "{}" + "}" * 3000 + "}",
    ],
)
@pytest.mark.parametrize("guided", [False, True])
def test_a_malformed_tag_is_told_from_a_right_one(tag: str, guided: bool) -> None:
    with pytest.raises(ValueError, match=r":|no format"):
        constraint(tag, tokens.STOPS, guided=guided)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ({"type": "token", "token": 200005}, "<[200005]>"),
        ({"type": "const_string", "value": 'a"\\ü\n'}, '"a\\U00000022\\U0000005Cü\\U0000000A"'),
        ({"type": "optional", "content": {"type": "any_tokens", "exclude_tokens": [1]}}, "(free)?"),
    ],
)
def test_a_format_is_written_as_gbnf(form: dict[str, Any], written: str) -> None:
    held = constraint(json.dumps({"type": "structural_tag", "format": form}), tokens.STOPS, guided=True)
    assert held.asked["grammar"].splitlines()[0] == f"root ::= {written}"
