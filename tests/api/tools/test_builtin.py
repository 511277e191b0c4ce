"""Tools that the model was trained with: read where this service runs them, and left out where it doesn't."""

from typing import Any

import msgspec
import pytest

from service.api.tools.builtin import DECLARED_BY, browser, python
from service.api.tools.choice import Chosen, read_choice
from service.api.tools.read import Tools, read_tools
from service.errors import InvalidRequest
from service.steps import in_one_go

FUNCTION = {"type": "function", "name": "f"}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
WEB = {"type": "web_search"}
BROWSER = {"browser.search", "browser.open", "browser.find"}


def options(sent: msgspec.Raw, where: str) -> str:
    """What a back end keeps of a declaration: here its place."""
    return where


BUILTINS = (python(options, seconds=120, drive="/mnt/data"), browser(options))


def tools(*value: Any, added: Any = ()) -> Tools:
    more = [("input[0].tools", raw(each)) for each in added]
    return in_one_go(read_tools(raw(value), max_tools=64, max_bytes=1_048_576, added=more, builtins=BUILTINS))


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def chosen(value: Any, *declared: Any) -> Chosen:
    return read_choice(raw(value), tools(*declared))


def test_what_runs_here_is_called_by_its_own_names_and_stands_in_no_namespace_of_the_callers() -> None:
    read = tools(CODE, FUNCTION, WEB)

    assert {each.recipient for each in read.callees} == {"functions.f", "python", *BROWSER}
    assert [each.recipient for each in read.own] == ["functions.f"]
    assert (read.namespaces, read.left_out) == (("functions",), ())
    assert "python" not in read.section
    assert read.trained.startswith("## browser\n\n// Tool for browsing.")
    assert "\n\n## python\n\nUse this tool" in read.trained
    assert read.echo == (CODE, read.echo[1], WEB)


def test_what_is_not_declared_is_not_shown() -> None:
    assert tools(FUNCTION).trained == ""
    assert tools(CODE).trained == BUILTINS[0].section
    assert tools(WEB).trained == BUILTINS[1].section


@pytest.mark.parametrize("kind", sorted(DECLARED_BY))
def test_every_type_declares_one_of_them_and_its_options_are_kept(kind: str) -> None:
    read = tools(FUNCTION, {"type": kind})

    trained = [each.hosted for each in read.callees if each.trained]
    assert {(each.kind, each.options) for each in trained if each} == {(DECLARED_BY[kind], "tools[1]")}


@pytest.mark.parametrize("twice", [(CODE, CODE), (WEB, {"type": "web_search_preview"})])
def test_one_that_is_declared_twice_is_refused(twice: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        tools(*twice)

    assert refused.value.param == "tools[1].type"


def test_one_that_an_item_adds_counts_in_the_place_of_the_requests() -> None:
    (callee,) = tools(CODE, added=[[CODE]]).callees

    assert callee.hosted is not None
    assert callee.hosted.options == "input[0].tools[0]"


def test_a_callers_tool_may_not_take_one_of_their_names() -> None:
    taken = {"type": "namespace", "name": "browser", "tools": [{"type": "function", "name": "open"}]}
    with pytest.raises(InvalidRequest) as refused:
        tools(WEB, taken)

    assert "browser.open" in str(refused.value)
    assert tools(taken).callees[0].hosted is None
    assert len(tools(CODE, {"type": "function", "name": "python"}).callees) == 2


@pytest.mark.parametrize(
    ("choice", "recipients"),
    [
        ({"type": "code_interpreter"}, {"python"}),
        ({"type": "web_search"}, BROWSER),
        ({"type": "web_search_preview"}, BROWSER),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "code_interpreter"}, FUNCTION]},
            {"python", "functions.f"},
        ),
    ],
)
def test_a_choice_may_name_them(choice: Any, recipients: set[str]) -> None:
    read = chosen(choice, CODE, WEB, FUNCTION)

    assert read.allowed == recipients
    assert read.choice == ("auto" if choice["type"] == "allowed_tools" else "required")
