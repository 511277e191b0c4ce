"""`harmonium export` and `import`: trees as files, and back at another service."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from service.features.client import trees
from service.features.client.reading import TREES
from service.features.client.service import RemoteService
from service.features.client.trees import ExportCounts, export_lines
from service.features.console.listing import KeptTrees
from store.errors import ArchiveUnavailable
from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import id_of, run, said

SEAL_KEY = "a-seal-key-of-more-than-32-characters"
NOBODYS = "resp_00" + "0" * 46


@pytest.fixture
def pair(beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch) -> tuple[ServiceBeside, str]:
    """A service that the commands talk to, and the address of another one with the same seal key."""
    one, other = beside(seal_keys=SEAL_KEY), beside(seal_keys=SEAL_KEY)
    monkeypatch.setenv("HARMONIUM_URL", one.url)
    return one, other.url


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_tree_goes_to_another_service_as_it_is(pair: tuple[ServiceBeside, str], tmp_path: Path) -> None:
    _, other = pair
    first = id_of(run("ask", "My name is Ada."))
    second = id_of(run("ask", "--from", first, "Count to 3."))
    fork = id_of(run("ask", "--from", first, "Count to 4."))
    alone = id_of(run("ask", "Count to 5."))
    exported = run("export", second, fork, first)
    head, *turns = lines(exported.stdout)
    assert head == {"object": "harmonium.tree", "version": 1, "id": first}
    assert [turn["id"] for turn in turns] == [first, second, fork]
    file = tmp_path / "tree.jsonl"
    file.write_text(exported.stdout)
    assert said("import", str(file), "--url", other) == "3 turns imported, 0 already stored\n"
    assert said("tree", second, "--url", other) == said("tree", second)
    again = run("export", second, "--url", other).stdout
    assert [turn["turn"] for turn in lines(again)[1:]] == [turn["turn"] for turn in turns]
    assert "Ada" in said("ask", "--from", second, "What is my name?", "--url", other)
    everything = run("export", "--all")
    assert everything.stderr.splitlines()[-1] == "4 turns of 2 trees"
    assert {line["id"] for line in lines(everything.stdout)} == {first, second, fork, alone}
    assert said("import", "-", "--url", other, stdin=everything.stdout) == "1 turn imported, 3 already stored\n"


def test_all_is_exported_also_what_left_memory(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_URL", beside(max_responses=4, archive_url="sqlite", archive_after_seconds=0).url)
    first = id_of(run("ask", "My name is Ada."))
    ids = {first, *(id_of(run("ask", "--from", first, f"Count to {number}.")) for number in range(2, 6))}
    ids |= {id_of(run("ask", f"Count to {number}.")) for number in range(2, 6)}
    assert {line["id"] for line in lines(run("export", "--all").stdout)} == ids
    monkeypatch.setattr(trees, "PROGRESS_TURNS", 3)
    assert run("export", first).stderr.splitlines() == ["… 3 turns of 1 tree", "5 turns of 1 tree"]


class Moving:
    """A service of two trees, one of which is used while the pages are read, and so is at the front by then."""

    def pages(self, path: str, limit: int, since: int | None = None) -> Iterator[dict[str, Any]]:
        assert (path, limit, since) in ((TREES, 100, None), (TREES, 100, 7))
        for id in ("one",) if since is None else ("other", "one"):
            yield {"data": [{"id": id, "newest": {"id": id}, "last_used_at": 7}], "archive_away": None}

    def find(self, path: str) -> dict[str, Any]:
        archived = {"ends": [], "complete": True}
        return {"id": path.rpartition("/")[2], "turns": [], "turns_complete": True, "archived": archived}


def test_a_tree_that_is_used_during_an_export_of_all_is_in_it() -> None:
    exported = export_lines(cast(RemoteService, Moving()), [], ExportCounts())
    assert [line["id"] for line in exported] == ["one", "other"]


def test_an_archive_that_does_not_answer_is_told_beside_what_is_in_memory(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise ArchiveUnavailable("away")

    monkeypatch.setenv("HARMONIUM_URL", beside(archive_url="sqlite").url)
    first = id_of(run("ask", "My name is Ada."))
    monkeypatch.setattr(KeptTrees, "some", away)
    listed, exported = run("ls"), run("export", "--all")
    assert listed.stdout.split()[0] == first
    lacked = "the conversations that are only in the archive: the archive doesn't answer"
    assert listed.stderr == f"… without {lacked}\n"
    assert [line["id"] for line in lines(exported.stdout)] == [first, first]
    assert (exported.exit_code, exported.stderr.splitlines()[0]) == (1, listed.stderr.removeprefix("… ").strip())


@pytest.mark.parametrize("archive", ["sqlite", "none"])
def test_what_was_deleted_comes_back_from_a_file_where_no_archive_knows_that(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: str
) -> None:
    monkeypatch.setenv("HARMONIUM_URL", beside(archive_url=archive).url)
    first = id_of(run("ask", "My name is Ada."))
    second = id_of(run("ask", "--from", first, "Count to 3."))
    file = tmp_path / "tree.jsonl"
    file.write_text(said("export", first))
    shown = said("show", second)
    said("rm", "--tree", "--yes", first)
    assert run("show", second).exit_code == 3
    if archive == "none":
        assert said("import", str(file)) == "2 turns imported, 0 already stored\n"
        assert said("show", second) == shown
        return
    outcome = run("import", str(file))
    assert (outcome.exit_code, outcome.stdout) == (
        1,
        "0 turns imported, 0 already stored, 1 stays deleted, 1 refused\n",
    )
    assert "If the parent stays deleted, this turn can't be imported." in outcome.stderr
    assert run("show", second).exit_code == 3


@pytest.mark.usefixtures("service")
def test_what_is_missing_is_told(service: ServiceBeside) -> None:
    first = id_of(run("ask", "My name is Ada."))
    queued = said("ask", "--background", "--from", first, "Count to 10000.").strip()
    exported = run("export", first)
    assert exported.exit_code == 1
    assert f"without {queued}, which is still running" in exported.stderr
    assert [line["id"] for line in lines(exported.stdout)] == [first, first]
    service.http().post(f"/v1/responses/{queued}/cancel")


@pytest.mark.usefixtures("service")
def test_turns_that_are_refused_are_counted_and_the_others_come(tmp_path: Path) -> None:
    first = id_of(run("ask", "My name is Ada."))
    _, turn = lines(said("export", first))
    changed = turn | {"turn": turn["turn"][:-8] + "AAAAAAAA"}
    result = run("import", "-", stdin="\n".join(map(json.dumps, [changed, turn])) + "\n\n")
    assert result.exit_code == 1
    assert result.stdout == "0 turns imported, 1 already stored, 1 refused\n"
    assert result.stderr.startswith("line 1: Invalid value for 'seal'")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "message"),
    [
        (("export",), "", 2, "give the id of a response, or --all"),
        (("export", NOBODYS), "", 3, "not found"),
        (("import", "-"), '\n{"object":"harmonium.tree","version":2}', 1, "in version 2; this release reads 1"),
        (("import", "-"), '{"turn":7}', 2, "line 1 is not a turn"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: tuple[str, ...], stdin: str, status: int, message: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, message in result.stderr) == (status, True), result.stderr
