"""`harmonium fsck`: what it prints, with which status it ends, and that it changes nothing unless it is told to."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from redis import Redis
from typer.testing import CliRunner, Result

from service.commands.arguments import EXIT_UNREACHABLE
from service.commands.command_line import app
from store.archive.opening import open_archive
from store.backup.archiving.parts import decode, encode
from store.backup.archiving.shards import note_older
from store.embedded import EmbeddedServer
from store.fsck.faults import MEANINGS
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn
from tests.support.archive.kept import kept
from tests.support.documents import read, rows, section

TENANT = "acme"
WORDS = "my secret words"
SECRET = "sk-very-secret"

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """The embedded server of the settings, with two turns in its store."""
    with EmbeddedServer(tmp_path / "data") as running:
        asyncio.run(_store_two(running.url))
        yield running


async def _store_two(url: str) -> None:
    store = ConversationHistoryStore(connect(url))
    root = store.new_id()
    for id, parent in ((root, None), (store.new_id(root), root)):
        message = StoredMessage("user", WORDS.encode())
        await store.append(TENANT, Turn(id, parent, Status.COMPLETED, (message,), json.dumps({"text": WORDS}).encode()))
    await store.close()


def lose_a_root(server: EmbeddedServer) -> None:
    with Redis.from_url(server.url) as redis:
        ((member, _),) = redis.zrange("harmonium:{00}:trees", 0, -1, withscores=True)
        redis.delete(f"harmonium:{{00}}:t:{TENANT}:node:{member.decode().split('/')[1]}")


def fsck(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fsck", *arguments], env={"COLUMNS": "200"})


def test_what_is_wrong_is_a_row_with_its_id_and_none_of_its_words_and_stays_without_repair(
    server: EmbeddedServer,
) -> None:
    sound = fsck()
    assert (sound.exit_code, sound.output.endswith(": nothing is wrong\n")) == (0, True), sound.output
    lose_a_root(server)
    for arguments in ((), ("--json",)):
        result = fsck(*arguments)
        assert result.exit_code == 1
        assert "no-parent" in result.output
        assert "resp_00" in result.output
        assert WORDS not in result.output
    first = json.loads(fsck("--json").output)
    assert first["found"] == first["left"] == len(first["complaints"]) > 0
    assert first["complaints"][0].keys() == {"shard", "project", "id", "what", "detail", "mended"}
    again = json.loads(fsck("--json").output)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_a_repair_without_an_archive_names_what_is_lost_and_ends_with_status_1(server: EmbeddedServer) -> None:
    lose_a_root(server)
    result = fsck("--repair")
    assert result.exit_code == 1, result.output
    assert "all repaired" in result.output
    assert "without a copy in an archive: 1 were removed" in result.output
    assert fsck().output.startswith("0 turns in 1 shard")
    (entry,) = CliRunner().invoke(app, ["audit", "--json"]).stdout.splitlines()
    told = json.loads(entry)
    assert (told["type"], told["actor"]["api_key"]["id"]) == ("store.fsck_repaired", "command-line")
    assert told["store.fsck_repaired"]["data"]["repaired"]["no-parent"] > 0
    assert told["store.fsck_repaired"]["data"]["left"] == 0
    assert "resp_" not in entry


def test_a_server_that_is_not_there_ends_it_with_one_line_without_the_password() -> None:
    result = fsck("--redis-url", f"redis://me:{SECRET}@127.0.0.1:1")
    assert result.exit_code == EXIT_UNREACHABLE
    assert result.stderr.startswith("harmonium: can't check the store: ")
    assert len(result.stderr.splitlines()) == 1
    assert SECRET not in result.output + result.stderr


def test_where_no_store_was_ever_nothing_is_sound_and_nothing_is_made(tmp_path: Path) -> None:
    result = fsck("--data-dir", str(tmp_path / "other"))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"harmonium: can't check the store: no store is in {tmp_path / 'other'}; ")
    assert not (tmp_path / "other").exists()


def test_every_fault_has_its_row_in_the_document_as_the_command_says_it() -> None:
    shown = [
        (word.strip("`"), says) for word, says, *repair in rows(section(read("docs/operating.md"), "fsck")) if repair
    ]
    assert shown == list(MEANINGS.items())


def test_where_there_is_an_archive_both_sides_are_looked_at_and_repaired(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    asyncio.run(_archived(server.url, tmp_path / "data", gone=True))
    for arguments in ((), ("--json",)):
        result = fsck(*arguments)
        assert (result.exit_code, "gone-readable" in result.output) == (1, True), result.output
        assert WORDS not in result.output
    repaired = fsck("--repair")
    assert (repaired.exit_code, "1 fault, all repaired" in repaired.output) == (0, True), repaired.output
    assert fsck().exit_code == 0


def test_a_repair_asks_the_archive_whether_it_has_what_a_turn_lacks(server: EmbeddedServer, tmp_path: Path) -> None:
    asyncio.run(_archived(server.url, tmp_path / "data"))
    lose_a_root(server)
    result = fsck("--repair")
    assert (result.exit_code, "2 turns in the archive" in result.output) == (0, True), result.output
    assert fsck().output.startswith("0 turns in 1 shard")


async def _archived(url: str, folder: Path, *, gone: bool = False) -> None:
    """The archive has all turns; it may say of the last one that it is `gone`, as if it was deleted."""
    archive = open_archive("sqlite", folder)
    async with kept(url, "harmonium", archive) as both:
        await note_older(both.store.server, both.store.keyspace)
        await both.archive_all()
        (key,) = await both.keys()
        stored = await archive.get(key)
        assert stored is not None
        if gone:
            part = decode(stored.value)
            await archive.put(key, encode(replace(part, gone={part.turns[-1].id: False})), only_if=stored.etag)
    await archive.close()
