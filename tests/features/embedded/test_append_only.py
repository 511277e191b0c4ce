"""Append-only files that can't be read back: what is sound is kept, what is cut is said, and a copy is put aside."""

import asyncio
import os
import random
from pathlib import Path

import pytest
from redis import Redis

from store.append_only import COPIES, CutPart, repair
from store.embedded import EmbeddedServer
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.store.sample import TENANT, grow, said

SET = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\0\0\0\0\r\n"
CHANGE = b"*1\r\n$5\r\nMULTI\r\n" + SET + b"*1\r\n$4\r\nEXEC\r\n"
HALF_A_CHANGE = CHANGE[:-3]
ZEROS = "zeros, where the disk was full"
HALF = "half a change, at the end of the file"
UNREADABLE = "it can't be read"
AFTER = "it follows what can't be read"

FIRST, SECOND = "appendonly.aof.1.incr.aof", "appendonly.aof.2.incr.aof"


async def keep(url: str, *texts: str) -> str:
    store = ConversationHistoryStore(connect(url), timeout_seconds=15.0)
    ids = await grow(store, *texts)
    await store.close()
    return ids[-1]


async def read(url: str, tip: str) -> list[str]:
    store = ConversationHistoryStore(connect(url), timeout_seconds=15.0)
    texts = await said(store, tip)
    await store.close()
    return texts


def files(folder: Path, *contents: bytes) -> Path:
    """A server's folder with these files."""
    made = folder / "appendonlydir"
    made.mkdir()
    lines = ["file appendonly.aof.1.base.rdb seq 1 type b"]
    for number, content in enumerate(contents, 1):
        name = f"appendonly.aof.{number}.incr.aof"
        (made / name).write_bytes(content)
        lines.append(f"file {name} seq {number} type i")
    (made / "appendonly.aof.manifest").write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.parametrize(
    ("contents", "kept", "cuts"),
    [
        ((bytes(5) + SET + bytes(7) + SET,), (SET + SET,), [(FIRST, 0, 5, ZEROS), (FIRST, 5 + len(SET), 7, ZEROS)]),
        (
            (SET + bytes(3) + SET[:-1],),
            (SET,),
            [(FIRST, len(SET), 3, ZEROS), (FIRST, len(SET) + 3, len(SET) - 1, HALF)],
        ),
        (
            (SET + b"?" + SET, SET),
            (SET, b""),
            [(FIRST, len(SET), 1 + len(SET), UNREADABLE), (SECOND, 0, len(SET), AFTER)],
        ),
        ((HALF_A_CHANGE, SET), (b"", SET), [(FIRST, 0, len(HALF_A_CHANGE), HALF)]),
    ],
    ids=["holes", "hole-and-torn", "unreadable", "torn-before"],
)
def test_what_can_not_be_read_is_cut_and_nothing_else(
    tmp_path: Path, contents: tuple[bytes, ...], kept: tuple[bytes, ...], cuts: list[tuple[str, int, int, str]]
) -> None:
    made = files(tmp_path, *contents)
    found = repair(tmp_path)
    assert found is not None
    assert list(found.cuts) == [CutPart(*each) for each in cuts]
    assert (
        tuple((made / f"appendonly.aof.{number}.incr.aof").read_bytes() for number in range(1, len(kept) + 1)) == kept
    )
    for cut in found.cuts:
        assert (found.copy / cut.file).read_bytes() in contents
    assert repair(tmp_path) is None


@pytest.mark.parametrize("length", range(len(CHANGE)))
def test_a_file_that_ends_at_any_byte_keeps_all_that_is_complete(tmp_path: Path, length: int) -> None:
    made = files(tmp_path, SET + CHANGE[:length])
    found = repair(tmp_path)
    assert (found is None) == (length == 0)
    assert (made / FIRST).read_bytes() == SET


def test_files_that_can_be_read_are_left_alone(tmp_path: Path) -> None:
    made = files(tmp_path, SET + CHANGE, b"", SET)
    before = {path.name: path.stat().st_ino for path in made.iterdir()}
    assert repair(tmp_path) is None
    assert {path.name: path.stat().st_ino for path in made.iterdir()} == before
    assert not (tmp_path / "damaged").exists()
    assert repair(tmp_path / "elsewhere") is None


def test_only_the_copies_of_the_last_repairs_are_kept(tmp_path: Path) -> None:
    made = files(tmp_path, SET)
    for _ in range(COPIES + 2):
        with (made / FIRST).open("ab") as file:
            file.write(bytes(4))
        assert repair(tmp_path) is not None
    assert sorted(path.name for path in (tmp_path / "damaged").iterdir()) == ["3", "4", "5"]


def written_last(folder: Path) -> Path:
    return max((folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_size)


def test_a_base_that_can_not_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path):
        pass
    (base,) = (tmp_path / "appendonlydir").glob("*.base.rdb")
    base.write_bytes(b"nothing of ours")
    with pytest.raises(StoreUnavailable, match="ended at once"):
        EmbeddedServer(tmp_path).start()
    assert base.read_bytes() == b"nothing of ours"


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=[pytest.mark.full, pytest.mark.timeout(600)])])
def test_a_server_starts_whatever_the_end_of_its_file_is(tmp_path: Path, rounds: int) -> None:
    """A crash of the machine leaves a file cut at any byte, with any number of zeros behind that."""
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance = random.Random(seed)
    with EmbeddedServer(tmp_path) as server:
        tip = asyncio.run(keep(server.url, "one", "two"))
        with Redis.from_url(server.url) as redis:  # a server that waits for its disk writes a little later
            redis.set("written", 1)
            assert redis.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
        sure = written_last(tmp_path).stat().st_size
        asyncio.run(keep(server.url, *["three", "four", "five"]))
    file = written_last(tmp_path)
    whole = file.read_bytes()
    for _ in range(rounds):
        os.truncate(file, 0)
        file.write_bytes(whole[: chance.randrange(sure, len(whole))] + bytes(chance.choice((0, 1, 4096))))
        with EmbeddedServer(tmp_path) as server:
            assert asyncio.run(read(server.url, tip)) == ["one", "two"], TENANT
