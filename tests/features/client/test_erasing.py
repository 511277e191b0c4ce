"""Erasing a person by the command: it says of each conversation why it stays, and of shards that nobody can read."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from service.commands.arguments import EXIT_USAGE
from service.features.client import printing
from service.features.client.erasing import erase
from service.features.client.errors import ClientError, RefusedByService
from service.features.client.service import RemoteService
from store.catalogue.cataloguing import Cataloguer
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.service.beside import ServiceBeside
from tests.support.service.commands import run, said
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.store.backups import back_up
from tests.support.store.sample import TENANT, grow
from tests.support.waiting import wait_until

REASONS = {"a": (409, "A response is under way."), "b": (403, "The key may not."), "c": (404, "Unknown.")}


class Refusing:
    """A service whose conversations stay for these reasons, and that can't read some shards, and so many others."""

    def __init__(self, unread: list[str]) -> None:
        self._unread, self._searched = unread, {"unread": len(unread)}

    def call(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        if method == "DELETE":
            raise RefusedByService(*REASONS[path[-1]])
        trees = [{"id": id, "title": "", "newest": {"id": id, "status": "completed"}} for id in REASONS]
        end = {"after": None, "archive_away": None, "unread_shards": self._unread, "searched": self._searched}
        return {"data": trees, **end}


@pytest.mark.parametrize("unread", [[], ["0a", "ff"]])
def test_an_erasure_says_why_each_conversation_stays_and_what_can_not_be_read(
    capsys: pytest.CaptureFixture[str], unread: list[str]
) -> None:
    service = cast(RemoteService, Refusing(unread))
    told = erase.__wrapped__(service, metadata=["user=x"], yes=True, as_json=True)  # pyright: ignore[reportFunctionMemberAccess]
    found = capsys.readouterr()
    assert told == 1
    assert json.loads(found.out) == {
        "found": 3,
        "erased": 1,
        "left": ["a", "b"],
        "too_large": len(unread),
        "unread_shards": unread,
    }
    assert "a stays: A response is under way. (HTTP 409)\nb stays: The key may not. (HTTP 403)\n" in found.err
    assert ("missing: 2 shards of the archive, which can't be read: 0a ff" in found.err) == bool(unread)
    assert ("missing: 2 conversations too large to be searched" in found.err) == bool(unread)


def test_unread_conversations_alone_are_a_reason_to_fail(capsys: pytest.CaptureFixture[str]) -> None:
    service = Finding([])
    service.searched = {"unread": 1}
    assert erase.__wrapped__(cast(RemoteService, service), metadata=["user=x"], yes=True) == 1  # pyright: ignore[reportFunctionMemberAccess]
    assert "missing: 1 conversation too large to be searched" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (("--metadata", "project=x", "--safety-identifier", ""), 1),
        (("--metadata", "user=ada", "--metadata", "user=bob"), EXIT_USAGE),
    ],
)
def test_a_person_of_whom_a_part_would_not_count_is_refused(
    service: ServiceProcess, asked: Sequence[str], status: int
) -> None:
    for user in ("ada", "bob"):
        service.client().responses.create(model=MODEL, input="Hello.", metadata={"user": user, "project": "x"})
    assert said("erase", "--yes", *asked, status=status) == ""
    assert len(said("ls", "--metadata", "project=x").splitlines()) >= 2


async def _backed_up(server_url: str, prefix: str, folder: Path) -> tuple[str, str]:
    """Two backups: of two conversations, and after one of them was deleted; the ids of both."""
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=1)
    (one,), (other,) = await grow(store, "one"), await grow(store, "other")
    await back_up(server_url, prefix, folder / "before")
    await store.forget_tree(TENANT, one)
    await back_up(server_url, prefix, folder / "behind")
    await store.close()
    return one, other


def test_an_erasure_says_which_backups_still_have_the_conversations_and_when_they_were_made(
    server_url: str, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "sub").mkdir()
    (folder / "text").write_text("no backup")
    one, other = asyncio.run(_backed_up(server_url, prefix, folder))
    today = datetime.now(UTC).date().isoformat()
    for ids, has in (([one], {"before": 1}), ([one, other], {"before": 2, "behind": 1})):
        service = cast(RemoteService, Finding(ids))
        for as_json in (True, False):
            assert not erase.__wrapped__(service, metadata=["user=x"], yes=True, as_json=as_json, backups=folder)  # pyright: ignore[reportFunctionMemberAccess]
            found = capsys.readouterr()
            if as_json:
                told = {Path(each["file"]).name: each["has"] for each in json.loads(found.out)["backups"]}
                assert told == has | {"text": 0}
                continue
            for name, number in has.items():
                assert f"{folder / name} of {today}T" in found.err
                assert f"still has {number} of them" in found.err
            assert f"{folder / 'text'} can't be read as a backup" in found.err
            assert f"{len(ids)} found, {len(ids)} erased" in found.out


def test_without_their_folder_an_erasure_says_that_backups_may_have_it_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = cast(RemoteService, Finding(["a"]))
    assert not erase.__wrapped__(service, metadata=["user=x"], yes=True)  # pyright: ignore[reportFunctionMemberAccess]
    assert "Earlier backups may still have them: --backups FOLDER names these" in capsys.readouterr().err
    with pytest.raises(ClientError, match="is no folder"):
        erase.__wrapped__(service, metadata=["user=x"], backups=tmp_path / "none")  # pyright: ignore[reportFunctionMemberAccess]


class Finding:
    """A service that finds these conversations, and deletes them."""

    def __init__(self, ids: list[str]) -> None:
        self._ids, self.searched = ids, {"unread": 0}

    def call(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        trees = [{"id": id, "title": "", "newest": {"id": id, "status": "completed"}} for id in self._ids]
        end = {"after": None, "archive_away": None, "unread_shards": [], "searched": self.searched}
        return {"data": trees, **end}


def test_a_catalogue_that_is_being_made_is_told_and_nothing_is_erased_meanwhile(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_whole(_: Cataloguer) -> tuple[str, bool]:
        return "", False

    monkeypatch.setattr(Cataloguer, "whole", not_whole)
    service = beside(archive_url="sqlite")
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    service.client().responses.create(model=MODEL, input="My name is Ada.", metadata={"user": "ada"})
    away = "the catalogue of the archive is being built, and can't be searched yet"
    listed, erased = run("ls", "--metadata", "user=ada"), run("erase", "--metadata", "user=ada", "--yes")
    assert "My name is Ada." in listed.stdout
    assert listed.stderr == f"… without the conversations that are only in the archive: {away}\n"
    assert (erased.exit_code, erased.stdout) == (1, "")
    assert erased.stderr == f"harmonium: {away}; nothing was erased. Run this again later\n"
    assert "My name is Ada." in said("ls")


@pytest.mark.parametrize("archive", ["none", "sqlite"])
def test_an_erased_conversation_leaves_nothing_whatever_was_deleted_of_it_before(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch, archive: str
) -> None:
    service = beside(archive_url=archive, archive_after_seconds=0)
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    client, ada = service.client(), {"user": "ada"}

    def begin(**more: Any) -> str:
        items = [{"role": "user", "content": text} for text in ("My name is Ada.", "I like tea.")]
        return client.conversations.create(metadata=ada, items=items, **more).id  # pyright: ignore[reportArgumentType]

    _, whole, omitted = (begin() for _ in range(3))
    begin(extra_body={"harmonium": {"fork_of": begin()}})
    first = client.responses.create(model=MODEL, input="My name is Ada.").id
    begin(extra_body={"harmonium": {"fork_of": first}})
    for id in (client.responses.create(model=MODEL, input="Count to 2.", conversation=whole).id, first):
        client.responses.delete(id)
    (item, *_) = client.conversations.items.list(omitted)
    client.conversations.items.delete(str(item.id), conversation_id=omitted)
    asked = ("erase", "--metadata", "user=ada")
    wait_until(
        lambda: run(*asked, "--dry-run").stdout == "5 found, 0 erased\n", otherwise="the catalogue isn't complete"
    )
    assert said(*asked, "--yes") == "5 found, 5 erased\n"
    assert said("ls") == ""
    assert list(service.http().get("/v1/conversations").json()["data"]) == []


def test_a_person_is_found_in_a_branch_that_left_memory_while_another_one_is_in_use(
    beside: Callable[..., ServiceBeside], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = beside(max_responses=3, archive_url="sqlite", archive_after_seconds=0)
    monkeypatch.setenv("HARMONIUM_URL", service.url)
    ask = service.client().responses.create
    root = ask(model=MODEL, input="Hi.").id
    ada = ask(model=MODEL, input="My name is Ada.", metadata={"user": "ada"}, previous_response_id=root).id
    for text in ("Count to 2.", "Count to 3."):
        ask(model=MODEL, input=text, previous_response_id=root)
    asked = ("erase", "--metadata", "user=ada")
    wait_until(lambda: run(*asked, "--dry-run").stdout == "1 found, 0 erased\n", 120, "the catalogue isn't complete")
    ask(model=MODEL, input="Count to 4.", previous_response_id=root)
    assert service.http().get(f"/console/api/trees/{root}").json()["archived"]["ends"][-1] == ada
    assert said(*asked, "--yes") == "1 found, 1 erased\n"
    assert service.http().get(f"/v1/responses/{ada}").status_code == 404


@pytest.mark.parametrize(
    ("text", "mark", "marked"),
    [
        ("Zürich is no azur, and (zurichs)\033[2J", "zur", "*Zürich* is no azur, and (*zurichs*)<U+001B>[2J"),
        ("明日の天気、GPUは暑い。天気", "gpu 天気", "明日の*天気*、*GPU*は暑い。*天気*"),
    ],
)
def test_words_that_begin_as_those_looked_for_are_marked_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, mark: str, marked: str
) -> None:
    printing.out(text, mark=mark)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printing.choose_styles({"NO_COLOR": "1"})
    printing.out(text, mark=mark)
    assert capsys.readouterr().out == f"{marked.replace('*', '')}\n"
    printing.choose_styles({"TERM": "xterm"})
    printing.out(text, mark=mark)
    assert capsys.readouterr().out.replace("\033[1m", "*").replace("\033[0m", "*") == f"{marked}\n"
