"""A catalogue's file: whose it is, that erased words are soon in none of its files, and processes that share it."""

import asyncio
import os
import sqlite3
import stat
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from store.catalogue import sqlite
from store.catalogue.catalogue import Catalogue
from store.catalogue.cataloguing import WHOLE
from store.catalogue.sqlite import SqliteCatalogue
from store.errors import ArchiveRefused
from store.history.elsewhere import FIRST
from tests.support import ROOT
from tests.support.archive.catalogues import FILE, catalogue_at, found, put, row_of
from tests.support.archive.opened import Place
from tests.support.store.sample import TENANT

TREES = [f"00{number:02}" for number in range(60)]
SECONDS = 100.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def place(folder: Path) -> Place:
    return Place("sqlite", f"sqlite://{folder}")


@pytest.fixture
async def catalogue(place: Place) -> AsyncIterator[Catalogue]:
    made = catalogue_at(place)
    yield made
    await made.close()


def files_with(folder: Path, word: bytes) -> list[str]:
    """The names of the files that have some bytes."""
    return sorted(path.name for path in folder.iterdir() if word in path.read_bytes())


async def put_anew(catalogue: Catalogue, word: str | None, trees: Sequence[str]) -> None:
    """Put rows that are found by a word and many others, or bare ones, whatever is there."""

    async def put_one(tree: str) -> None:
        row = None if word is None else row_of(f"{word} {os.urandom(2_000).hex(' ', 4)} {word}{tree}", f"f{word}")
        assert await put(catalogue, tree, row, (await catalogue.row(TENANT, tree)).version)

    await asyncio.gather(*map(put_one, trees))


async def tidied(catalogue: Catalogue) -> None:
    while await catalogue.tidy():
        pass


async def test_its_files_are_its_owner_s_alone(catalogue: Catalogue, folder: Path) -> None:
    await put(catalogue, "00aa", row_of("word"), "")
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(folder)} == {0o600}


async def test_where_there_is_no_file_there_is_no_row(catalogue: Catalogue, folder: Path) -> None:
    os.mkdir(folder)
    assert (await catalogue.note(WHOLE), await found(catalogue), await found(catalogue, "word")) == ("", [], [])
    assert ((await catalogue.row(TENANT, "00aa")).version, await catalogue.tidy()) == ("", False)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("how", ["replaced", "bare", "removed", "tenant"])
async def test_an_erased_word_is_in_none_of_its_files_once_it_is_tidy_and_closed(
    place: Place, folder: Path, how: str
) -> None:
    catalogue, secret = catalogue_at(place), f"secret{os.urandom(8).hex()}"
    for some in (TREES[::2], TREES[1::2]):  # in several segments of the index
        await put_anew(catalogue, f"{secret} {secret}", some)
    await catalogue.close()
    assert files_with(folder, secret.encode()) == [FILE]
    catalogue = catalogue_at(place)
    assert len(await found(catalogue, secret)) == len(TREES)
    match how:
        case "replaced":
            await put_anew(catalogue, "word", TREES)
        case "bare":
            await put_anew(catalogue, None, TREES)
        case "removed":
            for tree in TREES:
                version, _ = await catalogue.row(TENANT, tree)
                assert await catalogue.put(TENANT, tree, None, "", version)
        case _:
            await catalogue.erase(TENANT, FIRST[0])
    await tidied(catalogue)
    await catalogue.close()
    assert files_with(folder, secret.encode()) == []
    again = catalogue_at(place)
    assert len(await found(again, "word")) == (len(TREES) if how == "replaced" else 0)
    await again.close()


async def test_another_process_may_have_tidied_it_by_the_time_that_a_step_begins(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, other = SqliteCatalogue(folder / FILE, SECONDS), catalogue_at(place)
    await put_anew(other, "secret", TREES)
    await put_anew(other, "word", TREES)
    read = catalogue.read

    async def tidied_meanwhile(statement: str, *values: object) -> Sequence[Any]:
        untidy = await read(statement, *values)
        await tidied(other)
        return untidy

    monkeypatch.setattr(catalogue, "read", tidied_meanwhile)
    assert [await catalogue.tidy() for _ in range(2)] == [True, False]
    await catalogue.close()
    await other.close()
    assert files_with(folder, b"secret") == []


async def test_what_is_changed_while_it_is_tidied_is_tidied_too(
    catalogue: Catalogue, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.catalogue.sqlite.TIDIED_PAGES", 1)
    other = catalogue_at(place)
    await put_anew(other, "secret", TREES)
    await put_anew(other, "word", TREES[:5])
    assert [await catalogue.tidy() for _ in range(3)] == [True] * 3
    await put_anew(other, "word", TREES)
    await other.close()
    await tidied(catalogue)
    await catalogue.close()
    assert files_with(folder, b"secret") == []


async def test_of_several_processes_none_undoes_what_another_one_put(catalogue: Catalogue, folder: Path) -> None:
    """Each puts a row anew, with one word more, as often as it takes."""
    program = [sys.executable, "-m", "tests.support.archive.programs.cataloguing", str(folder / FILE), "20"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [await asyncio.create_subprocess_exec(*program, env=environment, cwd=ROOT) for _ in range(2)]
    async with asyncio.timeout(SECONDS):
        assert [await process.wait() for process in processes] == [0, 0]
    _, row = await catalogue.row(TENANT, "00aa")
    assert row
    assert len(set(row.shown.split())) == 40
    for word in row.shown.decode().split():
        assert await found(catalogue, word) == ["00aa"]


async def test_a_file_that_is_none_is_told(catalogue: Catalogue, folder: Path) -> None:
    os.mkdir(folder)
    (folder / FILE).write_bytes(b"this is no file of SQLite's" * 400)
    with pytest.raises(ArchiveRefused, match=r"catalogue\.db is damaged.*remove it.*makes it again"):
        await catalogue.note(WHOLE)
    os.remove(folder / FILE)
    assert await catalogue.note(WHOLE) == ""


async def test_a_file_of_a_later_release_is_told_too(catalogue: Catalogue, folder: Path) -> None:
    os.mkdir(folder)
    with closing(sqlite3.connect(folder / FILE)) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(ArchiveRefused, match="later release; remove it"):
        await found(catalogue)


async def test_the_text_around_words_of_many_rows_takes_about_as_long_as_that_of_one(catalogue: Catalogue) -> None:
    """As the rows that match a beginning are looked up once, not once for each row that is told."""
    texts = [" ".join(f"a{os.urandom(4).hex()}" for _ in range(100)) for _ in range(1_000)]
    await asyncio.gather(*(put(catalogue, f"00{at:04}", row_of(text, used=at), "") for at, text in enumerate(texts)))

    async def seconds(limit: int) -> float:
        begun = monotonic()
        assert len(await found(catalogue, "a0", limit=limit)) == limit
        return monotonic() - begun

    one = min([await seconds(1) for _ in range(3)])
    assert min([await seconds(60) for _ in range(3)]) < 8 * one


async def test_a_search_that_takes_long_holds_up_no_archiver(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(catalogue, "00aa", row_of("word"), "")
    reads, ends = threading.Event(), threading.Event()
    rows = sqlite._rows  # pyright: ignore[reportPrivateUsage]

    def slow(statement: str, *args: Any) -> Sequence[Any]:
        if "count(*)" in statement:
            reads.set()
            ends.wait(SECONDS)
        return rows(statement, *args)

    monkeypatch.setattr(sqlite, "_rows", slow)
    searching = asyncio.create_task(found(catalogue, "word"))
    try:
        assert await asyncio.to_thread(reads.wait, SECONDS)
        async with asyncio.timeout(5):
            version = (await catalogue.row(TENANT, "00aa")).version
            assert await put(catalogue, "00aa", row_of("word other"), version)
    finally:
        ends.set()
    assert await searching == ["00aa"]


async def test_a_file_that_is_removed_while_it_is_in_use_is_begun_anew(catalogue: Catalogue, folder: Path) -> None:
    await catalogue.put_note(WHOLE, "words")
    await put(catalogue, "00aa", row_of("word"), "")
    assert await found(catalogue, "word") == ["00aa"]
    os.remove(folder / FILE)
    assert (await catalogue.note(WHOLE), await found(catalogue, "word")) == ("", [])
    assert await put(catalogue, "00bb", row_of("word"), "")
    assert await found(catalogue, "word") == ["00bb"]


OTHER = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); file.execute('PRAGMA user_version'); file.close()"
"""Another program that looks at a file; as the last that uses it, it would take the log away."""


async def test_what_is_written_stays_where_another_program_looks_at_the_file(
    catalogue: Catalogue, folder: Path
) -> None:
    """Its searches have a connection of their own: opening that must not unlock what the other one has locked."""
    await put(catalogue, "00aa", row_of("word"), "")
    assert await found(catalogue, "word") == ["00aa"]
    looks = await asyncio.create_subprocess_exec(sys.executable, "-c", OTHER, str(folder / FILE))
    assert await looks.wait() == 0
    assert await put(catalogue, "00bb", row_of("word"), "")
    with closing(sqlite3.connect(folder / FILE)) as file:
        assert file.execute("SELECT count(*) FROM harmonium_catalogue").fetchone() == (2,)


async def test_the_searches_of_a_tenant_hold_up_no_list_and_another_tenant_s_search_for_one_at_most(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(catalogue, "00aa", row_of("word"), "")
    reads, ends, begun = threading.Event(), threading.Event(), list[str]()
    rows = sqlite._rows  # pyright: ignore[reportPrivateUsage]

    def slow(statement: str, values: Sequence[Any], file: sqlite3.Connection) -> Sequence[Any]:
        if "count(*)" in statement:
            begun.append(str(values[0]))
            reads.set()
            ends.wait(SECONDS)
        return rows(statement, values, file)

    monkeypatch.setattr(sqlite, "_rows", slow)
    searching = [asyncio.create_task(found(catalogue, "word")) for _ in range(3)]
    assert await asyncio.to_thread(reads.wait, SECONDS)
    other = asyncio.create_task(found(catalogue, "word", tenant="globex"))
    try:
        async with asyncio.timeout(2):
            assert await found(catalogue) == ["00aa"]
    finally:
        ends.set()
    assert await asyncio.gather(*searching, other) == [["00aa"]] * 3 + [[]]
    assert [asked == begun[0] for asked in begun] == [True, False, True, True]
