"""`harmonium archive`: what its commands print, with which status they end, and what they refuse."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from typer.testing import CliRunner, Result

from service.commands.arguments import EXIT_UNREACHABLE
from service.commands.command_line import app
from store.archive.archive import FORMAT, FORMAT_KEY, Archive
from store.archive.opening import open_archive
from store.backup.archiving.marks import GONE, key_of
from store.backup.archiving.store_archive import StoreArchive
from store.backup.heads import key_of as head_key
from store.backup.upkeep.reconciling import Reconciler
from store.embedded import EmbeddedServer
from tests.support.archive.kept import kept
from tests.support.store.sample import TENANT, grow

WORDS = "my secret words"
PREFIX = "harmonium"

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ids(folder: Path) -> Iterator[list[str]]:
    """A server that runs, with a tree of two turns that is archived, and one of another tenant."""
    with EmbeddedServer(folder) as server:
        yield asyncio.run(_filled(server.url, folder))


async def _filled(url: str, folder: Path) -> list[str]:
    archive = open_archive("sqlite", folder)
    async with kept(url, PREFIX, archive) as both:
        ids = await grow(both.store, WORDS, "two")
        await grow(both.store, "other", tenant="acme-2")
        await both.archive_all()
    await archive.close()
    return ids


def told(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["archive", *arguments], env={"COLUMNS": "200"})


def in_archive(folder: Path, *, harm: bool = False) -> list[str]:
    """The keys of the archive; `harm` damages the value of its first tree."""

    async def look(archive: Archive) -> list[str]:
        keys = [entry.key for entry in await archive.list("v1/")]
        if harm:
            tree = next(key for key in keys if key.count("/") == 4)
            found = await archive.get(tree)
            assert found is not None
            await archive.put(tree, b"damaged", only_if=found.etag)
        await archive.close()
        return keys

    return asyncio.run(look(open_archive("sqlite", folder)))


def test_the_status_says_what_is_there_and_what_waits(ids: list[str]) -> None:
    result = told("status")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[:3] == ["archive: sqlite", "probe: passed", "nothing waits to be archived, in 1 shard"]
    assert lines[3].startswith("in the archive: 2 trees, 3 values, ")
    found = json.loads(told("status", "--quick", "--json").output)
    assert (found["usable"], found["stored"], found["redis"]) == (True, None, None)


def test_an_archive_that_is_not_the_stores_is_told_of_and_not_compared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer(folder) as server:
        asyncio.run(_joined(server.url, folder))
        assert (told("status", "--quick").exit_code, told("verify").exit_code) == (0, 0)
        asyncio.run(_put(tmp_path / "other", "v1/other", b""))
        monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", f"sqlite://{tmp_path}/other/archive")
        result = told("status", "--quick")
        assert (result.exit_code, "is its volume mounted" in result.output) == (1, True), result.output
        for arguments in (("verify", "--repair"), ("restore", "--into-memory"), ("erase", "--project", "x", "--yes")):
            result = told(*arguments)
            assert (result.exit_code, "is its volume mounted" in result.output) == (2, True), result.output
        report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    (found,) = [each for each in report["findings"] if each["what"] == "archive"]
    assert (found["level"], "is its volume mounted" in found["now"]) == ("unsafe", True)


async def _joined(url: str, folder: Path) -> None:
    archive = open_archive("sqlite", folder)
    async with kept(url, PREFIX, archive) as both:
        await StoreArchive(both.store, archive, reconcile=Reconciler(both.store, archive).shard).open()
    await archive.close()


def test_no_command_reads_or_changes_an_archive_of_a_later_release(
    ids: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "200"})

    monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", "sqlite")
    assert command("backup", tmp_path / "before").exit_code == 0
    asyncio.run(_put(folder, FORMAT_KEY, str(FORMAT + 1).encode()))
    files = {path.name: path.read_bytes() for path in (folder / "archive").glob("*.db")}
    project = ("--project", TENANT)
    for arguments in (
        ("archive", "status"),
        ("archive", "verify", "--repair"),
        ("archive", "verify", "--alone", "--repair"),
        ("archive", "export", *project),
        ("archive", "erase", *project, "--yes"),
        ("archive", "hold", *project),
        ("archive", "accept", "--yes"),
        ("archive", "catalogue"),
        ("backup", tmp_path / "after"),
        ("restore", tmp_path / "before"),
    ):
        done = command(*arguments)
        assert (done.exit_code, f"format version {FORMAT + 1}" in done.output) == (2, True), (arguments, done.output)
    report = json.loads(command("doctor", "--json").stdout)
    (found,) = [each for each in report["findings"] if each["what"] == "archive"]
    assert (found["level"], "upgrade it" in found["now"]) == ("unsafe", True)
    assert {path.name: path.read_bytes() for path in (folder / "archive").glob("*.db")} == files


async def _put(folder: Path, key: str, value: bytes) -> None:
    archive = open_archive("sqlite", folder)
    await archive.put(key, value, only_if=None)
    await archive.close()


def test_faults_end_it_with_1_until_they_are_repaired(ids: list[str], folder: Path) -> None:
    sound = told("verify", "--all")
    assert sound.output == "2 trees with 3 turns in the archive, 2 trees of Redis: nothing is wrong\n"
    in_archive(folder, harm=True)
    for arguments in (("verify", "--all"), ("verify", "--all", "--json")):
        result = told(*arguments)
        assert result.exit_code == 1
        assert "unreadable" in result.output
        assert WORDS not in result.output
    repaired = told("verify", "--all", "--repair")
    assert repaired.exit_code == 0, repaired.output
    assert "all repaired" in repaired.output
    assert "moved away: 1" in told("verify", "--all", "--alone").output


def test_an_export_goes_to_stdout_or_to_a_file_of_its_own(ids: list[str], folder: Path, tmp_path: Path) -> None:
    result = told("export", "--project", TENANT)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ids
    packed = tmp_path / "turns.jsonl.zst"
    assert told("export", "--project", TENANT, "--tree", ids[1], packed.name).exit_code == 0
    assert packed.stat().st_mode & 0o777 == 0o600
    assert told("export", "--project", TENANT, packed.name).exit_code == 2  # it is there
    assert zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read() == result.stdout.encode()


def test_a_tenant_is_erased_here_and_there_and_only_with_yes(ids: list[str], folder: Path) -> None:
    asked = told("erase", "--project", TENANT)
    assert (asked.exit_code, "without a terminal use --yes" in asked.stderr) == (1, True)
    assert "Erase 1 tree in Redis, 1 value in the archive, for ever?" in asked.stderr
    plan = told("erase", "--project", TENANT, "--dry-run")
    assert (plan.exit_code, plan.output) == (0, "to erase: 1 tree in Redis, 1 value in the archive\n")
    planned = json.loads(told("erase", "--project", TENANT, "--dry-run", "--json").output)
    assert planned == {"project": TENANT, "trees_in_redis": 1, "values": 1, "held": False}
    assert json.loads(told("verify", "--all", "--json").output)["compared"] == 2
    result = told("erase", "--project", TENANT, "-y")
    assert result.output == "erased: 1 tree in Redis, 1 value in the archive\n"
    assert told("export", "--project", TENANT).stdout == ""
    assert json.loads(told("verify", "--all", "--json").output)["compared"] == 1
    assert {key_of(GONE, TENANT), head_key(0)} <= set(in_archive(folder))  # so an old Redis is known


def test_a_time_since_which_trees_come_back_is_read_as_that_of_a_list(ids: list[str]) -> None:
    for since, trees in (("2h", 2), ("2026-01-01T10:00", 2), ("2099-01-01", 0)):
        result = told("restore", "--into-memory", "--since", since, "--json")
        assert (result.exit_code, json.loads(result.output)["wanted"]) == (0, trees), result.output
    assert json.loads(told("restore", "--json").output)["wanted"] == 0
    wrong = told("restore", "--since", "soon")
    assert (wrong.exit_code, "'soon' is not a time" in wrong.stderr) == (2, True), wrong.output


def test_an_older_copy_is_accepted_only_once_that_is_asked(ids: list[str], folder: Path, tmp_path: Path) -> None:
    assert told("accept").output == "the archive is not an older copy\n"
    shutil.copytree(folder / "archive", tmp_path / "before")
    assert told("erase", "--project", TENANT, "--yes").exit_code == 0
    shutil.rmtree(folder / "archive")
    (tmp_path / "before").rename(folder / "archive")
    looked = told("accept", "--dry-run")
    assert (looked.exit_code, looked.stdout[:12]) == (1, "shard 00 is "), looked.output
    refused = told("accept")
    assert (refused.exit_code, "shard 00 is " in refused.stderr, "use --yes" in refused.stderr) == (1, True, True)
    assert json.loads(told("accept", "--yes", "--json").output)["accepted"]
    assert told("accept").output == "the archive is not an older copy\n"


def test_what_is_on_hold_is_not_erased(ids: list[str]) -> None:
    assert told("hold", "--project", TENANT).output == f"project {TENANT} is on hold\n"
    refused = told("erase", "--project", TENANT, "--yes")
    assert (refused.exit_code, "on hold" in refused.output) == (2, True)
    assert len(told("export", "--project", TENANT).stdout.splitlines()) == 2
    held = json.loads(told("hold", "--project", TENANT, "--json").output)
    assert held == {"project": TENANT, "held": True, "changed": False}
    assert told("hold", "--project", TENANT, "--release").output == f"project {TENANT} is no longer on hold\n"
    assert told("erase", "--project", TENANT, "--yes").exit_code == 0


def test_the_archive_alone_is_enough_where_redis_is_not_there(monkeypatch: pytest.MonkeyPatch, ids: list[str]) -> None:
    monkeypatch.setenv("HARMONIUM_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("HARMONIUM_ARCHIVE_URL", "sqlite")
    found = told("status")
    assert (found.exit_code, "in the archive: 2 trees" in found.output) == (0, True)
    assert told("verify", "--all", "--alone").exit_code == 0
    export = told("export", "--project", TENANT)
    assert (export.exit_code, len(export.stdout.splitlines())) == (1, 2)
    assert "the export lacks data that is only in Redis" in export.stderr
    assert told("verify").exit_code == EXIT_UNREACHABLE
    assert told("hold", "--project", TENANT).exit_code == 0


def test_what_is_erased_held_and_repaired_is_in_the_audit_log(ids: list[str], folder: Path) -> None:
    for arguments in (("hold",), ("hold",), ("hold", "--release"), ("erase", "--yes")):
        assert told(*arguments, "--project", TENANT).exit_code == 0
    in_archive(folder, harm=True)
    assert told("verify", "--all", "--repair").exit_code == 0
    assert told("verify", "--all", "--repair").exit_code == 0
    logged = CliRunner().invoke(app, ["audit", "--json"]).stdout
    entries = [json.loads(line) for line in logged.splitlines()]
    kinds = ["archive.repaired", "archive.erased", "archive.released", "archive.held"]
    assert [each["type"] for each in entries] == kinds
    assert {each["actor"]["api_key"]["id"] for each in entries} == {"command-line"}
    assert WORDS not in logged


def test_a_turn_after_an_erasure_by_a_machine_whose_clock_is_ahead_is_archived(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def comes_anew(url: str) -> list[str] | None:
        archive = open_archive("sqlite", folder)
        async with kept(url, PREFIX, archive) as both:
            (root,) = await grow(both.store, "anew")
            await both.archive_all()
            found = await both.told(root)
        await archive.close()
        return found

    with EmbeddedServer(folder) as server:
        asyncio.run(_filled(server.url, folder))
        with monkeypatch.context() as ahead:
            ahead.setattr(time, "time", lambda now=time.time: now() + 3600)
            assert told("erase", "--project", TENANT, "--yes").exit_code == 0
        assert asyncio.run(comes_anew(server.url)) is not None
