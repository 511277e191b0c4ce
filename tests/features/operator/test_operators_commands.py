"""All commands that open the store, side by side: their options, and how they end where there is none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.commands.arguments import EXIT_UNREACHABLE, EXIT_USAGE
from service.commands.command_line import app
from store.embedded import EmbeddedServer
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("own_folder")

COMMANDS = {
    "archive accept": "",
    "archive catalogue": "",
    "archive erase": "--project acme",
    "archive export": "--project acme turns.jsonl",
    "archive hold": "--project acme",
    "archive restore": "--into-memory",
    "archive status": "",
    "archive verify": "",
    "audit": "",
    "backup": "one.hm",
    "fsck": "",
    "keys create": "proj_x",
    "keys create-admin": "Ada",
    "keys list": "proj_x",
    "keys list-admin": "",
    "keys revoke": "proj_x key_x --yes",
    "keys revoke-admin": "key_x --yes",
    "projects archive": "proj_x --yes",
    "projects create": "Chat",
    "projects limits": "proj_x",
    "projects list": "",
    "projects models": "proj_x",
    "projects update": "proj_x --name Talk",
    "restore": "one.hm",
    "usage": "",
}
"""Their arguments."""

OTHERS = {"completion", "doctor", "sandbox", "serve", "settings", "worker"}
"""Commands that neither talk to a service nor end where there is no store."""


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group, and of those in it, by their words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_each_has_the_options_that_name_the_store() -> None:
    options = {name: {each.name for each in command.params} for name, command in commands(get_command(app))}
    operators = {name for name, has in options.items() if "key_env" not in has} - OTHERS
    assert operators == COMMANDS.keys()
    assert {name for name in COMMANDS if {"redis_url", "data_dir"} <= options[name]} == COMMANDS.keys()


MAKING = {"keys create-admin", "projects create", "restore"}
"""Those that begin a store where there is none."""


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of an empty store."""
    folder = tmp_path_factory.mktemp("saved")
    with EmbeddedServer(folder / "data"):
        made = CliRunner().invoke(app, ["backup", f"{folder}/one.hm", "--data-dir", f"{folder}/data"])
    assert made.exit_code == 0, made.output
    return folder / "one.hm"


def ended(name: str, backup: Path, *more: str) -> tuple[int, str]:
    """The exit status of a command, and what it says; it has to be one line, and all that it prints."""
    if name == "restore":
        Path("one.hm").write_bytes(backup.read_bytes())
    result = CliRunner().invoke(app, [*name.split(), *COMMANDS[name].split(), *more], env={"COLUMNS": "200"})
    assert (result.stdout, len(result.stderr.splitlines()), result.stderr[:11]) == ("", 1, "harmonium: "), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_where_nothing_answers_each_ends_with_the_same_status_and_one_line(
    name: str, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", f"postgresql://127.0.0.1:{free_port()}/harmonium")
    status, told = ended(name, backup, "--redis-url", f"redis://127.0.0.1:{free_port()}")
    assert status == EXIT_UNREACHABLE, told
    assert {path.name for path in tmp_path.iterdir()} <= {"one.hm"}


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - MAKING))
@pytest.mark.parametrize("made", [False, True], ids=["no folder", "an empty folder"])
def test_where_there_is_no_store_each_names_the_folder_and_the_remedy_and_makes_none(
    name: str, made: bool, backup: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    if made:
        folder.mkdir()
    status, told = ended(name, backup, "--data-dir", str(folder))
    assert (status, f" is in {folder}" in told, "HARMONIUM_DATA_DIR" in told) == (EXIT_USAGE, True, True), told
    assert [path.name for path in tmp_path.rglob("*")] == ["other"] * made


@pytest.mark.parametrize("name", sorted(MAKING))
def test_a_command_that_begins_a_store_does_so_only_in_a_folder_that_is_there(
    name: str, backup: Path, tmp_path: Path
) -> None:
    status, told = ended(name, backup, "--data-dir", str(tmp_path / "wrong" / "data"))
    assert (status, f"there is no {tmp_path / 'wrong'}," in told, (tmp_path / "wrong").exists()) == (2, True, False)
    arguments = [*name.split(), *COMMANDS[name].split(), "--data-dir", str(tmp_path / "new")]
    assert CliRunner().invoke(app, arguments).exit_code == 0


@pytest.mark.parametrize("name", [*(each for each in COMMANDS if each.startswith("archive ")), "backup"])
def test_an_archive_in_a_folder_that_is_not_there_is_refused_and_not_made(
    name: str, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", f"sqlite://{tmp_path}/un%20mounted#1")
    with EmbeddedServer(tmp_path / "data"):
        status, told = ended(name, backup)
    assert (status, f"no archive is in {tmp_path}/un mounted#1; " in told) == (EXIT_USAGE, True), told
    assert "HARMONIUM_ARCHIVE_URL" in told
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_where_only_the_archive_is_away_fsck_reports_on_redis_and_ends_with_the_same_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", f"postgresql://127.0.0.1:{free_port()}/harmonium")
    with EmbeddedServer(tmp_path / "data"):
        result = CliRunner().invoke(app, ["fsck"])
    assert (result.exit_code, "The archive was not checked: " in result.output) == (EXIT_UNREACHABLE, True)
