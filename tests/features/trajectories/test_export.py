"""`harmonium export` of trajectories: in both forms, of ids, of a filter, of all, and of those used since a cursor."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import id_of, run
from tests.support.service.process import MODEL

LEFT_OUT = "without conversations that are only in the archive; --all includes them"


def exported(*arguments: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The trajectories that are printed, and the remarks."""
    told = run("export", *arguments)
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.stdout.splitlines()], told.stderr.splitlines()


def ends(*arguments: str) -> set[str]:
    """The last turns of the trajectories that are printed."""
    return {each["trajectory_id"] for each in exported(*arguments)[0]}


def cursor(remark: str) -> str:
    """The cursor that a remark names."""
    found = re.fullmatch(r"… --after (\S+) continues", remark)
    assert found is not None, remark
    return found[1]


def test_trajectories_are_exported_by_ids_filters_and_cursors(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside()
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    first = id_of(run("ask", "My name is Ada."))
    one = id_of(run("ask", "--from", first, "Count to 2."))
    fork = id_of(run("ask", "--from", first, "Count to 3."))
    noted = service.client().responses.create(model=MODEL, input="Count to 4.", metadata={"user": "ada"}).id
    assert ends("--format", "atif", one) == {one}
    assert ends("--format", "atif", "--all") == ends("--format", "atif", "--since", "2h") == {one, fork, noted}
    assert ends("--format", "atif", "--model", "demo") == {one, fork}
    assert ends("--format", "atif", "--model", "another") == ends("--format", "atif", "--since", "2100-01-01") == set()
    assert ends("--format", "atif", "--metadata", "user=ada") == {noted}
    gym, remarks = exported("--format", "gym", "--metadata", "user=ada")
    assert (len(gym), remarks) == (1, ["1 trajectory"])
    assert "generation_token_ids" in json.dumps(gym)

    everything, (continues, counted) = exported("--format", "atif", "--after", "0")
    assert ({each["trajectory_id"] for each in everything}, counted) == ({one, fork, noted}, "3 trajectories")
    later = id_of(run("ask", "--from", noted, "Count to 5."))
    assert ends("--format", "atif", "--after", cursor(continues)) == {later}
    for arguments in (["--all", "--after", "0"], ["--after", "0", one], ["--metadata", "user=ada", one], []):
        assert run("export", "--format", "atif", *arguments).exit_code == 2
    assert "needs --format atif or gym" in run("export", "--after", "0").stderr


def test_pages_behind_a_cursor_say_that_they_lack_what_is_only_in_the_archive(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside(max_responses=4, archive_url="sqlite", archive_after_seconds=0)
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    first = id_of(run("ask", "My name is Ada."))
    made = {id_of(run("ask", "--from", first, f"Count to {number}.")) for number in (2, 3)}
    made |= {id_of(run("ask", f"Count to {number}.")) for number in range(2, 7)}
    found, remarks = exported("--format", "atif", "--after", "0")
    assert {each["trajectory_id"] for each in found} < made
    assert (remarks[0], remarks.count(LEFT_OUT)) == (LEFT_OUT, 1)
    everything, remarks = exported("--format", "atif", "--all")
    assert ({each["trajectory_id"] for each in everything}, remarks) == (made, ["7 trajectories"])
