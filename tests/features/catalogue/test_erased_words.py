"""A word that was said and is erased: it is found in files of the data folder, then in none, however it is packed."""

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from service.features.client import erasing
from store import codec
from store.archive.opening import open_archive
from store.backup.archiving.parts import decode
from store.backup.upkeep.walking import TreeParts, trees
from tests.support.archive.patience import PATIENT
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)


MAGIC = b"\x28\xb5\x2f\xfd"
"""The beginning of a zstd frame."""


def unpacked(content: bytes) -> Iterator[bytes]:
    """The contents of the zstd frames of a file, as far as they can be read."""
    at = content.find(MAGIC)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            number = zstandard.get_frame_parameters(content[at : at + 18]).dict_id
            known = {"dict_data": codec.dictionary(number)} if number else {}
            yield zstandard.ZstdDecompressor(**known).decompressobj().decompress(content[at:])
        at = content.find(MAGIC, at + 1)


def files_with(folder: Path, word: str) -> set[str]:
    """The files that have a word, as it is or compressed."""
    contents = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        name
        for name, content in contents.items()
        if word.encode() in content or any(word.encode() in each for each in unpacked(content))
    }


def is_archived(data: Path, word: str) -> bool:
    """Whether a tree of the archive has a word once it is unpacked."""

    async def look() -> bool:
        archive = open_archive(f"sqlite://{data / 'archive'}", data, PATIENT)
        try:
            keys = [key async for tree in trees(archive) if isinstance(tree, TreeParts) for key in tree.keys]
            values = [found.value for key in keys if (found := await archive.get(key))]
            return any(word in repr(decode(value)) for value in values)
        finally:
            await archive.close()

    return asyncio.run(look())


def is_tidy(data: Path) -> bool:
    """Whether nothing that was deleted is in the catalogue's index."""
    with closing(sqlite3.connect(data / "archive" / "catalogue.db")) as file:
        return not file.execute("SELECT 1 FROM harmonium_catalogue_notes WHERE name = 'untidy'").fetchall()


def listed(service: ServiceProcess, **asked: str) -> list[str] | None:
    """The trees that are listed or found; None as long as it isn't known whether these are all."""
    page: dict[str, Any] = service.http().get("/console/api/trees", params=asked).json()
    return None if page["archive_away"] else [tree["id"] for tree in page["data"]]


def test_an_erased_word_is_in_no_file_once_the_append_only_file_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word, data = f"q{secrets.token_hex(12)}", tmp_path / "data"
    settings = {"archive_after_seconds": 0.2, "catalogue_words": "all", "demo_tokens_per_second": 0}
    service = ServiceProcess(tmp_path, **settings)

    def say(text: str, **more: Any) -> str:
        return service.client().responses.create(model=MODEL, input=text, **more).id

    try:
        person: dict[str, Any] = {"metadata": {"user": word}, "safety_identifier": word}
        first = say(f"{word} first", **person)
        say(f"more of {word}", previous_response_id=first, **person)
        left = say("other words")
        wait_until(lambda: is_archived(data, word) and listed(service, text=word) == [first], 60)
        service.stop()
        there = {Path(path).suffix for path in files_with(data, word)}
        assert there >= {".db", ".aof"}
        service.start()
        wait_until(lambda: listed(service, text=word), 60)
        monkeypatch.setenv("HARMONIUM_URL", service.url)
        done = CliRunner().invoke(erasing.app, ["--metadata", f"user={word}", "--yes"])
        assert (done.stdout, done.exit_code) == ("1 found, 1 erased\n", 0), done.output
        wait_until(lambda: not is_archived(data, word) and listed(service) == [left], 60)
        with service.redis() as redis:
            redis.bgrewriteaof()
            wait_until(lambda: redis.info("persistence")["aof_rewrite_in_progress"] == 0)
        service.stop()
        service.start()  # what was deleted is taken out of the index at once
        wait_until(lambda: is_tidy(data), 60)
        assert (listed(service), listed(service, text=word)) == ([left], [])
        service.stop()
        assert files_with(tmp_path, word) == set()
        assert not is_archived(data, word)
    finally:
        service.kill()
