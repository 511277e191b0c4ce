"""Scripts: the head of each tells the truth, no value can go missing, and a server that lost them gets them again."""

import re
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import store
from store.history.history import ConversationHistoryStore
from store.keys import Keyspace
from store.redis import scripts
from store.redis.connection import Argument
from store.redis.scripts import Script, lua
from tests.support.lua import write
from tests.support.lua.composing import composed, undefined
from tests.support.store.sample import TENANT, grow, said, turn

AnyScript = Script[Any, ...]
FOLDER = Path(store.__file__).parent / "redis" / "lua"
ALL = scripts.ALL
_ARGUMENT = re.compile(r"(?:-- Arguments: |-- {12})(\w+)  ")


def head(name: str) -> list[str]:
    """The comment that opens a script."""
    lines = lua(name).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))]


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_head_names_the_declared_keys_and_arguments_in_order(script: AnyScript) -> None:
    text = head(script.name)
    keys = next(at for at, line in enumerate(text) if line.startswith("-- Keys:      "))
    result = next(at for at, line in enumerate(text) if line.startswith("-- Result: "))
    assert tuple(text[keys].removeprefix("-- Keys:      ").split(", ")) == script.keys
    named = [match[1] for line in text[keys + 1 : result] if (match := _ARGUMENT.match(line))]
    assert tuple(named) == script.arguments


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_head_tells_the_result_and_the_invariant(script: AnyScript) -> None:
    text = "\n".join(head(script.name))
    assert "\n-- Result:    {" in text
    assert "\n-- Invariant: " in text


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_returns_only_the_words_that_its_head_promises(script: AnyScript) -> None:
    body = lua(script.name).removeprefix("\n".join(head(script.name)))
    returned = {word for line in re.findall(r"return \{.*", body) for word in re.findall(r"'(\w+)'", line)}
    promised = set(re.findall(r"\{'(\w+)'", "\n".join(head(script.name))))
    assert returned <= promised
    said = body + "".join(map(lua, script.includes))
    assert all(f"'{word}'" in said for word in promised)


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_what_the_server_gets_is_what_the_files_say(script: AnyScript) -> None:
    assert script.source == write.source(script), "run python -m tests.support.lua.write"


def test_nothing_else_was_put_together() -> None:
    assert {path.stem for path in (FOLDER / "composed").iterdir()} == {script.name for script in ALL}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.lua")), ids=lambda path: path.stem)
def test_no_script_counts_its_keys_or_arguments(path: Path) -> None:
    assert not re.search(r"\b(KEYS|ARGV)\b", path.read_text())


def test_a_script_is_sent_without_the_shared_functions_that_it_does_not_need() -> None:
    assert "local function gone(" in scripts.chain.source
    assert "local function gone(" not in scripts.unpin.source


def test_what_a_script_seldom_needs_is_defined_by_one_function() -> None:
    defined = re.findall(r"^( *)(?:local )?function (\w+)\(", scripts.append.source, re.MULTILINE)
    assert ("", "seldom") in defined
    assert (" " * 4, "evict_until") in defined  # with what only that needs
    assert (" " * 4, "take") in defined
    assert (" " * 8, "choosing") in defined  # which that needs seldom
    assert ("", "needed") in defined


TWICE = "local function twice(a, b)\n  return a + a .. b\nend\n"
BOTH = "local function both(a)\n  return twice(a, 'a(')\nend\n"


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("return both(x), { both(y.z) }\n", "return ((x + x .. 'a(')), { ((y.z + y.z .. 'a(')) }\n"),
        ("return twice(f(x, 1), both(1))\n", f"{TWICE}return twice(f(x, 1), ((1 + 1 .. 'a(')))\n"),
    ],
)
def test_a_function_that_only_returns_an_expression_is_written_where_it_is_called(body: str, written: str) -> None:
    assert composed([TWICE, BOTH], body) == written


SAID = "local words = {}\nlocal function say(word)\n  words[#words + 1] = word\nend\n"


def test_a_function_that_returns_nothing_is_written_where_it_is_called() -> None:
    assert composed([SAID], "if a then\n  say(f(b), 1)\nend\nsay(f(a))\nreturn words\n").endswith("\nreturn words\n")
    source = composed([SAID], "if a then\n  say(f(b))\nend\nreturn words\n")
    assert "if a then\n  do\n    local word = f(b)\n    words[#words + 1] = word\n  end\nend\n" in source


@pytest.mark.parametrize(
    "body",
    [
        "local words = f()\nsay(words)\n",  # another one
        "for words in f() do\n  say(words)\nend\n",
        "return say(1)\n",  # no statement
        "say(1, 2)\n",
    ],
)
def test_a_call_stays_where_what_it_stands_for_would_mean_something_else(body: str) -> None:
    assert composed([SAID], body) == SAID + body


SUM = "local function added(a, b)\n  local sum = a\n  sum = sum + b\n  return sum, f(a)\nend\n"


def test_a_function_that_returns_at_its_end_alone_is_written_where_it_is_called() -> None:
    written = "do\n  local a, b = y, 2\n  local sum = a\n  sum = sum + b\n  x, z = sum, f(a)\nend\n"
    assert composed([SUM], "local x, z = added(y, 2)\nreturn x\n") == f"local x, z\n{written}return x\n"
    for body in ("local sum, z = added(y, 2)\n", "local x = added(y, 2)\n", "local x, z = added(both())\n"):
        assert composed([SUM], body) == SUM + body


def test_what_is_kept_between_calls_is_there_once() -> None:
    shared = "local kept = {}\nlocal function keep(x)\n  kept[x] = x\nend\nlocal function told()\n  return kept\nend\n"
    source = composed([shared], "seldom('keep')(1)\nreturn told()\n")
    assert source.startswith("local seldom, defined_0\nlocal kept = {}\n")
    assert "    local function keep(x)\n" in source


NEVER_REACHED = {
    "sweep": {"ALL"},
    "settle": {"LOOKS", "leaves", "trees", "ALL", "is_held", "turn_of", "unpinned_from", "trees_of", "place_tree"}
    | {"place_leaf", "place_tombstone"},
}
"""What stands in functions of adopting.lua that these scripts never call."""


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_uses_no_name_before_it_is_defined(script: AnyScript) -> None:
    assert undefined(script.source) - NEVER_REACHED.get(script.name, set()) == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("local a = 1\nif a then\n  local b = a\nelse\n  c = { a = b }\nend\nreturn f(a)", {"b", "c", "f"}),
        ("for i, j in pairs(x) do\n  k(i)\nend\nlocal function f(y)\n  return y.z, f, i\nend", {"x", "k", "i"}),
    ],
)
def test_a_name_that_is_not_defined_is_found(source: str, names: set[str]) -> None:
    assert undefined(source) == names


def test_every_lua_file_is_a_declared_script_or_shared_by_some() -> None:
    shared = {path.stem for path in FOLDER.glob("*.lua") if path.read_text().startswith("-- Shared by")}
    assert {path.stem for path in FOLDER.glob("*.lua")} == shared | {script.name for script in ALL}
    assert len(ALL) == len({script.sha for script in ALL})


def test_only_what_adds_something_is_refused_by_a_server_out_of_memory() -> None:
    strict = {script.name for script in ALL if not script.source.startswith("#!lua flags=allow-oom")}
    assert strict == {
        "append",
        "submit",
        "succeed",
        "steer",
        "restore",
        "advance",
        "amend",
        "keep_container",
        "take_keyed",
    }


class Unused:
    """An operation that must not be reached."""

    async def command(self, *args: Argument) -> object:
        raise AssertionError(f"{args} was sent")


@pytest.mark.parametrize("values", [{"pin": None}, {}, {"pin": "x", "pins": "x"}])
def test_a_value_that_is_none_missing_or_unknown_is_refused_by_name(values: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="pin"):
        scripts.unpin(Unused(), Keyspace("p", 1).keys(TENANT, "00"), **values)  # type: ignore[arg-type]


async def test_a_server_that_lost_the_scripts_gets_them_again(store: ConversationHistoryStore, redis: Redis) -> None:
    (root,) = await grow(store, "one")
    await redis.script_flush()
    child = store.new_id(root)
    await store.append(TENANT, turn(child, root, text="two"))
    await redis.script_flush()
    assert await said(store, child) == ["one", "two"]
