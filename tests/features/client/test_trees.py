"""`harmonium ls` and `harmonium tree`: what a service lists, and a tree drawn as `git log --graph` would."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from service.features.client.trees import ARCHIVED, draw
from service.features.console.trees import Box
from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import id_of, run, said, told
from tests.support.service.process import ServiceProcess


def told_tree(*turns: str, asked: str = "") -> dict[str, Any]:
    """A tree of turns `id<parent`, each made a second after the one before, parents first."""
    made = [each.partition("<")[::2] for each in turns]
    return {
        "asked": asked,
        "turns": [
            {
                "id": id,
                "parent": parent or None,
                "kind": "conversation" if id.startswith("conv") else "response",
                "status": "completed",
                "created_at": at,
                "input": id.upper(),
                "output": None,
            }
            for at, (id, parent) in enumerate(made)
        ],
    }


def drawing(*turns: str, asked: str = "") -> list[str]:
    return list(draw(told_tree(*turns, asked=asked)))


def test_forks_within_forks_have_columns_of_their_own() -> None:
    assert drawing("a", "b<a", "c<b", "d<b", "e<a") == [
        "* e  E",
        "| * d  D",
        "| | * c  C",
        "| |/",
        "| * b  B",
        "|/",
        "* a  A",
    ]


@pytest.mark.usefixtures("service")
def test_conversations_are_listed_by_how_they_begin_and_what_was_said_last(service: ServiceProcess) -> None:
    first = id_of(run("ask", "My name is Ada."))
    other = id_of(run("ask", "Count to 3."))
    second = id_of(run("ask", "--from", first, "What is my name?"))
    result = run("ls", "--limit", "2")
    lines = [line.split("  ") for line in result.stdout.splitlines()]
    assert [(line[0], *line[2:]) for line in lines] == [
        (second, "2 turns", "My name is Ada.", "Your name is Ada."),
        (other, "1 turn", "Count to 3.", "1 2 3"),
    ]
    listed = [json.loads(line) for line in said("ls", "--json", "--limit", "2").splitlines()]
    assert [tree["newest"]["id"] for tree in listed] == [second, other]
    assert "shows more" not in said("ls", "--model", "none")
    nothing = run("ls", "--since", "1h", "--status", "failed")
    assert (nothing.stdout, nothing.stderr) == ("", "no conversation matches\n")
    assert run("ls", "--metadata", "x").exit_code == 2
    client = service.client()
    marked = client.responses.create(model="gpt-oss-20b", input="Count to 2.", metadata={"who": "cli"}).id
    client.responses.create(model="gpt-oss-20b", input="Count to 4.", previous_response_id=marked)
    assert "1 2 3 4" in said("ls", "--metadata", "who=cli")
    person = client.responses.create(model="gpt-oss-20b", input="I am here.", safety_identifier="p-ada").id
    assert [line.split()[0] for line in said("ls", "--safety-identifier", "p-ada").splitlines()] == [person]
    found = said("ls", "--text", "my ADA").splitlines()[0].split("  ")
    assert (found[0], found[3:]) == (second, ["My name is Ada.", "What is my name?"])
    message = {"type": "message", "role": "user", "content": "Only an item."}
    client.conversations.create(items=[message])
    line = said("ls", "--limit", "1").splitlines()[0].split("  ")
    (tree,) = (json.loads(each) for each in said("ls", "--json", "--limit", "1").splitlines())
    assert (line[2:4], tree["title"]) == (["0 turns", "Only an item."], "Only an item."), "the console's title"


def test_a_search_that_stopped_goes_on_by_itself_and_says_how_far_it_is(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside(archive_url="none")
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    monkeypatch.setattr("service.features.console.listing.Box", partial(Box, trees=2, at_once=1))
    monkeypatch.setattr("service.features.client.trees.PROGRESS_TREES", 4)
    first = id_of(run("ask", "My name is Ada."))
    for number in range(2, 8):
        run("ask", f"Count to {number}.")
    result = run("ls", "--text", "ada")
    assert result.stdout.split()[0] == first
    assert [line.split(",")[0] for line in result.stderr.splitlines()] == ["… looked at 4 conversations"]
    assert run("ls", "--limit", "6").stderr.splitlines()[-1].startswith("… --after ")


def test_an_archived_conversation_is_marked_in_the_list_and_deleted_like_any_other(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside(max_responses=2, archive_url="sqlite", archive_after_seconds=0)
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    first, *others = (id_of(run("ask", words)) for words in ("My name is Ada.", "Count to 2.", "Count to 3."))

    def listed() -> dict[str, list[str]]:
        return {line.split()[0]: line.split("  ")[3:] for line in said("ls").splitlines()}

    assert listed()[first][:2] == [ARCHIVED, "My name is Ada."]
    assert listed()[others[-1]][0] == "Count to 3."
    assert said("rm", "--tree", "--yes", first[:15]) == f"deleted {first}\n"
    assert listed().keys() == {*others}
    assert "My name is Ada." not in said("ls", "--text", "ada")


@pytest.mark.usefixtures("service")
def test_a_tree_is_drawn_with_its_branches() -> None:
    first = id_of(run("ask", "My name is Ada."))
    second = id_of(run("ask", "--from", first, "What is my name?"))
    fork = id_of(run("ask", "--from", first, "Count to 2."))
    head = 'My name is Ada. → You said "My name is Ada.". I am harmonium\'s de…'
    assert said("tree", second).splitlines() == [
        f"* {fork}  Count to 2. → 1 2",
        f"| * {second} (this one)  What is my name? → Your name is Ada.",
        "|/",
        f"* {first}  {head}",
    ]
    assert {turn["id"] for turn in told("tree", fork)["turns"]} == {first, second, fork}
