"""What is asked of an answer, held by a real engine: the toy model never meant to say any of this.

Whatever it samples under a tag has to be what the tag is for; of the rest of its sense nothing is expected.
"""

from typing import Any

import pytest
from lark import Lark

from service.api.tools.callee import Callee
from service.engine.port import Engine, Finish, Generation, Sampling
from service.grammar.checks import mismatch
from service.grammar.grammars import enforced_grammar
from service.grammar.regex import enforced_regex
from service.grammar.schemas import enforced_schema
from service.grammar.tags import HeaderState, content_tag, grammar_content, regex_content, schema_content
from service.harmony import tokens
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules
from service.steps import in_one_go
from tests.support.engine.hooks import Sampled, complete
from tests.support.engine.prompts import prompt, user

HELLO = prompt(user("Hello!"))
TOOLS = (Callee("get_weather"), Callee("run", "custom"))
OPENED = [*HELLO, tokens.CHANNEL, *tokens.encode("final"), tokens.MESSAGE]
PATCH = (
    'start: "*** Begin Patch" LF line~1..3 "*** End Patch"\nline: ("+" | "-") /[a-z ]{1,9}/? LF\n%import common.LF\n'
)


def of_schema(schema: dict[str, Any]) -> str:
    enforced = in_one_go(enforced_schema(schema, "schema"))
    assert enforced is not None
    return schema_content(enforced)


CONTENTS = {
    "an object": of_schema({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2, "maxLength": 9},
            "unit": {"enum": ["c", "f"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "price": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 2},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,4}$"}, "maxItems": 2},
        },
        "required": ["city", "unit", "days", "price"],
    }),
    "one of two": of_schema({
        "$defs": {"number": {"type": "number", "minimum": 0.5, "maximum": 9.5}},
        "oneOf": [{"const": "none"}, {"type": "array", "items": {"$ref": "#/$defs/number"}, "maxItems": 2}],
    }),
    "a regex": regex_content(enforced_regex(r"\d{3}-\d{4}", "definition")),
    "a grammar": grammar_content(in_one_go(enforced_grammar(PATCH, "definition"))),
}  # fmt: skip


async def under(engine: Engine, tag: str | None, ids: list[int], most: int = 300) -> Sampled:
    assert tag is not None
    return await complete(engine, Generation("held", ids, Sampling(most, 0, stop_ids=tokens.STOPS, structural_tag=tag)))


BEHIND: dict[HeaderState, list[int]] = {
    HeaderState.NEXT: [],
    HeaderState.BETWEEN: [tokens.CHANNEL, *tokens.encode("analysis"), tokens.MESSAGE, tokens.END],
    HeaderState.INSIDE: [tokens.CHANNEL, *tokens.encode("analysis"), tokens.MESSAGE],
    HeaderState.CALLED: [
        *(tokens.CHANNEL, *tokens.encode("commentary to=functions.run"), tokens.MESSAGE, *tokens.encode("ls")),
        tokens.CALL,
    ],
}


def headers(sampled: Sampled) -> list[str]:
    """What stands between a channel's mark and the end of the header, in each message."""
    found: list[str] = []
    ids = sampled.tokens
    for place, token in enumerate(ids):
        if token == tokens.MESSAGE:
            begin = max((at for at in range(place) if ids[at] in (tokens.START, tokens.END)), default=0)
            found.append(tokens.decode(each for each in ids[begin:place] if each < tokens.FIRST_SPECIAL))
    return [header.removeprefix("assistant") for header in found]


class ConstraintsHeld:
    """The tests. A subclass has the fixture `engine`, with the talker."""

    @pytest.mark.parametrize("case", CONTENTS)
    async def test_a_content_is_held_to_its_last_token(self, engine: Engine, case: str) -> None:
        sampled = await under(engine, content_tag(CONTENTS[case]), OPENED)
        assert sampled.finish is Finish.STOP
        assert sampled.tokens[-1] in tokens.STOPS
        text = tokens.decode(sampled.tokens[:-1])
        assert mismatch(CONTENTS[case], text, enforced=True) is None
        if case == "a grammar":
            Lark(PATCH).parse(text)

    async def test_a_required_call_is_made_by_a_model_that_would_rather_answer(self, engine: Engine) -> None:
        sampled = await under(engine, header_tag(Rules(TOOLS, choice="required"), HeaderState.NEXT), HELLO)
        assert any(f"to={tool.recipient}" in header for tool in TOOLS for header in headers(sampled))

    async def test_a_named_tool_is_the_only_one_that_is_called(self, engine: Engine) -> None:
        rules = Rules(TOOLS, choice="required", allowed=frozenset({"functions.run"}))
        sampled = await under(engine, header_tag(rules, HeaderState.NEXT), HELLO)
        assert "to=functions.run" in headers(sampled)[-1]

    async def test_no_tool_is_called_where_none_may_be(self, engine: Engine) -> None:
        sampled = await under(engine, header_tag(Rules(TOOLS, choice="none"), HeaderState.NEXT), HELLO)
        assert headers(sampled)[-1].startswith("final")
        assert not any("to=" in header for header in headers(sampled))

    @pytest.mark.parametrize("state", HeaderState)
    async def test_a_header_is_held_from_any_place_on(self, engine: Engine, state: HeaderState) -> None:
        sampled = await under(engine, header_tag(Rules(TOOLS, choice="required"), state), [*HELLO, *BEHIND[state]])
        behind_end = state is HeaderState.BETWEEN
        assert not behind_end or sampled.tokens[:2] == [tokens.START, tokens.ASSISTANT]
        ends = state is HeaderState.CALLED and sampled.tokens[0] in tokens.STOPS
        assert ends or "to=functions." in headers(sampled)[-1]
