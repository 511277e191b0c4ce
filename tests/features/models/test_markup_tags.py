"""What is asked of a model that writes a markup of its own: tags, and what a real xgrammar lets through them."""

import json
import re
import subprocess
from typing import Any

import pytest

from service.features.models.markup.families import MARKUPS
from service.features.models.markup.stream import MarkupPart
from service.features.models.markup.tags import Callable, TurnConstraint, tag
from service.grammar.tags import schema_content
from tests.support import ROOT
from tests.support.markup import enforcer
from tests.support.markup.streams import END, SPECIAL
from tests.support.markup.writing import Turn, written

FORMS = [name for name, markup in MARKUPS.items() if markup.form is not None]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
FIRST_BYTE = len(SPECIAL)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
STRICT = Callable("get_weather", schema_content(SCHEMA))
LOOSE = Callable("get_weather")
NOW = Callable("now")
GOOD, BAD = {"city": "Paris", "days": 3}, {"city": "Paris", "days": "soon"}
ANSWER = schema_content({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


def made(markup: str, asked: TurnConstraint, part: MarkupPart = MarkupPart.BEFORE) -> Any:
    """The format of a tag, or None."""
    text = tag(markup, tuple(SPECIAL.items()), asked, part)
    return None if text is None else json.loads(text)["format"]


@pytest.mark.parametrize("markup", FORMS)
def test_nothing_is_enforced_where_nothing_is_asked(markup: str) -> None:
    assert made(markup, TurnConstraint((LOOSE, NOW))) is None
    assert made(markup, TurnConstraint()) is None


def test_a_markup_without_calls_has_none_to_ask_for() -> None:
    with pytest.raises(LookupError):
        made("think", TurnConstraint((NOW,), required=True))
    assert made("think", TurnConstraint(answer=ANSWER)) is not None


def ids_of(text: str, special: dict[str, int]) -> list[int]:
    """A text in tokens: marks, and bytes."""
    parts = re.split("(" + "|".join(map(re.escape, sorted(special, key=len, reverse=True))) + ")", text)
    return [
        id
        for place, part in enumerate(parts)
        for id in ([special[part]] if place % 2 else [FIRST_BYTE + byte for byte in part.encode()])
    ]


def cases(markup: str, special: dict[str, int]) -> dict[str, tuple[str, bool]]:
    """Streams with their tags: name to JSON case, and whether it is to be let through."""
    out: dict[str, tuple[str, bool]] = {}

    def add(
        name: str, turn: Turn | str, asked: TurnConstraint, passes: bool, part: MarkupPart = MarkupPart.BEFORE
    ) -> None:
        text = (written(markup, turn) if isinstance(turn, Turn) else turn).removesuffix(END)
        form = tag(markup, tuple(special.items()), asked, part)
        case = {
            "tag": form,
            "ids": ids_of(text, special),
            "special": special,
            "first_byte": FIRST_BYTE,
            "stop": SPECIAL[END],
        }
        out[f"{markup}, {len(special)}: {name}"] = json.dumps(case), passes

    one = Turn("", "", [("get_weather", GOOD)])
    two = Turn("", "", [("get_weather", GOOD), ("get_weather", GOOD)])
    required = TurnConstraint((STRICT, NOW), required=True)
    add("a call", one, required, True)
    add("a call behind reasoning", Turn("Hm.", "", one.calls), required, True)
    add("two calls", two, required, True)
    add("one call alone", two, TurnConstraint((STRICT,), required=True, parallel=False), False)
    add("another tool", one, TurnConstraint((NOW,), required=True), False)
    add("arguments of no type", Turn("", "", [("get_weather", BAD)]), required, False)
    add("an answer instead", "Paris.", required, False)
    add("reasoning in place of a call", Turn("Hm.", "Paris.", []), required, False)
    add("an answer in its format", '{"a":1}', TurnConstraint((STRICT,), answer=ANSWER), True)
    add("a call instead of the answer", one, TurnConstraint((STRICT,), answer=ANSWER), True)
    add("an answer of no format", "Paris.", TurnConstraint((STRICT,), answer=ANSWER), False)
    add("any text before a strict call", Turn("", "Look.", one.calls), TurnConstraint((STRICT,)), True)
    add("a wrong call behind text", Turn("", "Look.", [("get_weather", BAD)]), TurnConstraint((STRICT,)), False)
    add("text where a tool is strict", "Paris.", TurnConstraint((STRICT,)), True)
    return out


ONE_TOKEN, SPELLED = dict(SPECIAL), {END: SPECIAL[END]}


@pytest.fixture(scope="module")
def let_through() -> dict[str, Any]:
    """What xgrammar says to all cases; to start it for each would take minutes."""
    every = {
        name: case
        for markup in FORMS
        for special in (ONE_TOKEN, SPELLED)
        for name, case in cases(markup, special).items()
    }
    given = "{" + ",".join(f"{json.dumps(name)}:{case}" for name, (case, _) in every.items()) + "}"
    done = subprocess.run([PYTHON, enforcer.__file__], input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.vllm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("special", [ONE_TOKEN, SPELLED], ids=["one token", "spelled"])
@pytest.mark.parametrize("markup", FORMS)
def test_xgrammar_lets_through_what_is_asked(markup: str, special: dict[str, int], let_through: dict[str, Any]) -> None:
    for name, (case, passes) in cases(markup, special).items():
        whole = [len(json.loads(case)["ids"]), True]
        assert (let_through[name] == whole) == passes, (name, let_through[name], whole)


def test_every_markup_with_calls_can_be_constrained_but_those_that_say_so() -> None:
    assert {name for name, markup in MARKUPS.items() if markup.call} - set(FORMS) == {
        "gemma-4",
        "kimi-k3",
        "llama-4",
        "minimax-m3",
        "seed",
    }
