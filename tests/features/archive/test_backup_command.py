"""`harmonium backup` and `harmonium restore`: what they print, with which status they end, and where they work."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.commands.arguments import EXIT_UNREACHABLE
from service.commands.command_line import app
from store.embedded import EmbeddedServer
from store.history.history import ConversationHistoryStore
from store.layout import shared_secret
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn
from tests.support.store.backups import cut
from tests.support.store.disks import fill, small_disk

WORDS = "my secret words"
PASSWORD = "sk-very-secret"

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """The embedded server of the settings, as `harmonium serve` runs it, with three turns in its store."""
    with EmbeddedServer(tmp_path / "data") as running:
        asyncio.run(_store_three(running.url))
        yield running


async def _store_three(url: str) -> None:
    store = ConversationHistoryStore(connect(url))
    root = store.new_id()
    for tenant, id, parent in (("acme", root, None), ("acme", store.new_id(root), root), ("b", store.new_id(), None)):
        await store.append(tenant, _turn(id, parent))
    await shared_secret(store)
    await store.close()


def _turn(id: str, parent: str | None, words: str = WORDS) -> Turn:
    return Turn(
        id, parent, Status.COMPLETED, (StoredMessage("user", words.encode()),), f'{{"text":"{words}"}}'.encode()
    )


def harmonium(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def of(*arguments: str | Path) -> dict[str, object]:
    """What a command prints as JSON, which ends with status 0."""
    result = harmonium(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_a_backup_of_a_running_server_says_what_is_in_it_and_none_of_its_words(server: EmbeddedServer) -> None:
    result = harmonium("backup", "one.hm")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert re.match(r"one\.hm: 3 turns in 2 conversations of 2 projects, \d+\.\d kB\n", result.output)
    assert "It contains the store's secret" in result.output
    assert WORDS not in result.output
    assert harmonium("backup", "--verify", "one.hm").output == result.output


def test_what_was_saved_is_restored_into_an_empty_store_that_does_not_run(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    saved = of("backup", "one.hm")
    restored = of("restore", "one.hm", "--data-dir", tmp_path / "new")
    assert (restored["restored"], restored["kept"], restored["secret"]) == (3, 0, "restored")
    again = of("backup", "two.hm", "--data-dir", tmp_path / "new")
    assert again["content"] == saved["content"]


def test_one_tenant_or_one_conversation_is_saved_without_the_secret_unless_asked_for(server: EmbeddedServer) -> None:
    one = of("backup", "one.hm", "--project", "acme")
    assert (one["turns"], one["project"], one["secret"]) == (2, "acme", False)
    refused = harmonium("backup", "two.hm", "--tree", "resp_" + "0" * 48)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("harmonium: can't make the backup: no turn 'resp_0")
    assert of("backup", "three.hm", "--project", "b", "--secret")["secret"] is True
    assert of("backup", "four.hm", "--no-secret")["secret"] is False


@pytest.mark.parametrize("command", [("backup", "--verify"), ("restore",)])
def test_a_damaged_file_is_one_line_and_nothing_of_it_is_restored(
    command: tuple[str, ...], server: EmbeddedServer, tmp_path: Path
) -> None:
    of("backup", "one.hm")
    cut(tmp_path / "one.hm", 5_000)
    result = harmonium(*command, "one.hm", "--data-dir", tmp_path / "new")
    assert result.exit_code == (1 if "--verify" in command else 2)
    assert "the file can't be used: " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    if command == ("restore",):
        assert of("backup", "two.hm", "--data-dir", tmp_path / "new")["turns"] == 0


def test_a_file_that_is_there_is_not_replaced(server: EmbeddedServer, tmp_path: Path) -> None:
    (tmp_path / "one.hm").write_text("precious")
    result = harmonium("backup", "one.hm")
    assert result.exit_code == 2
    assert "one.hm is there already" in result.stderr
    assert (tmp_path / "one.hm").read_text() == "precious"
    missing = harmonium("restore", "none.hm", "--data-dir", tmp_path / "never")
    assert (missing.exit_code, "none.hm" in missing.stderr, (tmp_path / "never").exists()) == (2, True, False)


@pytest.mark.parametrize("made", [False, True], ids=["no folder", "an empty folder"])
def test_where_no_store_was_ever_there_is_no_backup_and_nothing_is_made(tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "other"
    if made:
        folder.mkdir()
    result = harmonium("backup", "one.hm", "--data-dir", folder)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"harmonium: can't make the backup: no store is in {folder}; name its folder with ")
    assert len(result.stderr.splitlines()) == 1
    assert (folder.exists(), list(tmp_path.glob("*/*")), list(tmp_path.glob("one.hm*"))) == (made, [], [])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", 2)


@pytest.mark.parametrize("kib", [32, 96])  # SQLite's log has no room at all, or too little
def test_a_backup_onto_a_full_disk_says_so_leaves_no_file_that_looks_whole_and_goes_on_later(
    server: EmbeddedServer, disk: Path, kib: int
) -> None:
    filler, file = fill(disk, but=kib * 1024), disk / "one.hm"
    result = harmonium("backup", file)
    assert (result.exit_code, file.exists()) == (2, False)
    assert f"the disk of {file} has no room for the rest of it" in result.stderr
    filler.unlink()
    assert of("backup", file, "--resume")["turns"] == 3


def test_a_server_that_is_not_there_is_one_line_without_the_password(server: EmbeddedServer) -> None:
    of("backup", "one.hm")
    for command in (("backup", "two.hm"), ("restore", "one.hm")):
        result = harmonium(*command, "--redis-url", f"redis://me:{PASSWORD}@127.0.0.1:1")
        assert (result.exit_code, len(result.stderr.splitlines())) == (EXIT_UNREACHABLE, 1)
        assert PASSWORD not in result.output + result.stderr


def test_a_backup_goes_on_with_what_an_interrupted_one_has_left(server: EmbeddedServer, tmp_path: Path) -> None:
    whole = of("backup", "one.hm")
    (tmp_path / "two.hm.partial").write_bytes((tmp_path / "one.hm").read_bytes())
    resumed = of("backup", "two.hm", "--resume")
    assert (resumed["content"], resumed["turns"]) == (whole["content"], 3)
    assert not (tmp_path / "two.hm.partial").exists()
    (tmp_path / "five.hm.partial").write_bytes((tmp_path / "one.hm").read_bytes())
    other = harmonium("backup", "five.hm", "--resume", "--project", "b")
    assert (other.exit_code, "was begun for something else" in other.stderr) == (2, True)
