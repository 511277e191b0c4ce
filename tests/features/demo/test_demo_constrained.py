"""The demo engine under constraints as the service makes them, several calls at once, and answers that were begun."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import is_valid

from service.api.tools.callee import Callee
from service.engine.port import EngineRefused
from service.features.demo.functions import read_signature
from service.grammar.tags import HeaderState, content_tag, regex_content, schema_content
from service.harmony.tokens import (
    ASSISTANT,
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    RETURN,
    START,
    STOPS,
    decode,
    encode,
)
from service.responses.output.reading import header_tag
from service.responses.output.rules import Rules
from tests.support.engine.constrained import called, said, written
from tests.support.engine.prompts import prompt, user

TOOLS = """# Tools

## functions

namespace functions {

// Get the current weather for a city.
type get_weather = (_: {
city: string,
days: number,
}) => any;

// Tells the time.
type current_time = () => any;

// Runs a query.

// The input is plain text, not JSON. It must match this regular expression:
// SELECT [a-z]+
type run_query = (_: string) => any;

} // namespace functions

## agents

namespace agents {

// Spawns a helper.
type spawn = (_: {
name: string,
}) => any;

} // namespace agents"""

ARGUMENTS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = Callee("get_weather", content=schema_content(ARGUMENTS))
QUERY = Callee("run_query", "custom", content=regex_content("SELECT [a-z]+"))
CALLEES = (WEATHER, Callee("current_time"), QUERY, Callee("spawn", namespace="agents"))
TWO = "What's the weather in Paris and London?"
NEXT, BETWEEN, CALLED, INSIDE = HeaderState.NEXT, HeaderState.BETWEEN, HeaderState.CALLED, HeaderState.INSIDE


def asking(words: str = TWO) -> list[int]:
    return prompt(user(words), developer=TOOLS)


@pytest.mark.parametrize("allowed", [None, "functions.run_query", "agents.spawn"])
def test_who_has_to_call_calls_what_is_allowed(allowed: str | None) -> None:
    rules = Rules(CALLEES, "required", frozenset([allowed]) if allowed else None)
    asked = asking("hello")
    whole = said(asked, header_tag(rules, NEXT))
    assert whole[-1] == CALL
    assert called(whole)[0][0] == (allowed or "functions.get_weather")
    thought = whole.index(END)
    assert said([*asked, *whole[: thought + 1]], header_tag(rules, BETWEEN)) == whole[thought + 1 :]
    assert said([*asked, *whole[: thought - 3]], header_tag(rules, INSIDE)) == whole[thought - 3 :]


@given(st.text(alphabet='(){}[]|<>"?:,;/ \nab_:1', max_size=200))
def test_any_text_can_be_read_as_a_signature(text: str) -> None:
    read_signature(text)


def test_who_may_not_call_answers() -> None:
    whole = said(asking(), header_tag(Rules(CALLEES, "none"), NEXT))
    assert not called(whole)
    assert "<channel>final<message>" in written(whole)


def test_a_call_that_is_a_stop_ends_the_answer_and_the_next_one_comes_behind_it() -> None:
    rules = Rules(CALLEES, "required", parallel=3)
    first = said(asking(), header_tag(rules, NEXT))
    second = said([*asking(), *first], header_tag(rules, CALLED))
    assert [json.loads(text)["city"] for _, text in called([*first, *second])] == ["Paris", "London"]
    third = said([*asking(), *first, *second], header_tag(rules, CALLED))
    assert third == [RETURN]


@pytest.mark.parametrize("told", [True, False])
def test_an_answer_that_is_held_matches(told: bool) -> None:
    schema = {"type": "object", "properties": {"said": {"type": "string"}, "n": {"type": "integer", "maximum": 9}}}
    schema["required"] = ["said", "n"]
    developer = f"# Response Formats\n\n## reply\n\n{json.dumps(schema)}" if told else ""
    rules, asked = Rules(answer=schema_content(schema)), prompt(user("my number is 7"), developer=developer)
    whole = said(asked, header_tag(rules, NEXT))
    opened = [*asked, *whole[: len(whole) - whole[::-1].index(MESSAGE)]]
    content = said(opened, content_tag(schema_content(schema)))
    assert content[-1] == RETURN
    assert is_valid(schema, json.loads(decode(content)))
    for cut in range(len(content) if told else 0):
        assert said([*opened, *content[:cut]]) == content[cut:]


@pytest.mark.parametrize("stop_ids", [STOPS, (RETURN,)])
def test_an_answer_goes_on_wherever_it_was_broken_off(stop_ids: tuple[int, ...]) -> None:
    whole = said(asking(), None, stop_ids)
    for cut in range(len(whole)):
        assert said([*asking(), *whole[:cut]], None, stop_ids) == whole[cut:]


@pytest.mark.parametrize(
    "tag",
    [
        "{",
        '{"format":{"type":"triggered_tags"}}',
        '{"format":{"type":"grammar","grammar":"root ::= root"}}',
        '{"format":{"type":"regex","pattern":"(a{9999}){9999}"}}',
        json.dumps({"format": {"type": "regex", "pattern": "a" + "{1}" * 5000}}),
    ],
)
def test_a_tag_that_it_cannot_follow_is_refused(tag: str) -> None:
    with pytest.raises(EngineRefused):
        said(asking(), tag)


PARTS = [START, ASSISTANT, CHANNEL, MESSAGE, END, CALL, CONSTRAIN, RETURN, *encode("analysis final commentary")]
BEGINNINGS = st.lists(st.sampled_from([*PARTS, *encode(' to=functions.get_weather json {"city":"\\')]), max_size=12)
TAGS = [None, content_tag(schema_content(ARGUMENTS)), content_tag(regex_content("[a-z]+"))]


@given(begun=BEGINNINGS, tag=st.sampled_from(TAGS), words=st.sampled_from([TWO, "hello", ""]))
def test_it_goes_on_from_whatever_was_begun_as_the_tag_has_it(begun: list[int], tag: str | None, words: str) -> None:
    sampled = said([*asking(words), *begun], tag)
    assert not {RETURN, CALL} & set(sampled[:-1])
