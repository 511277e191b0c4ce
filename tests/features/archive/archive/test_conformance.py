"""The port of archives, for every backend: each test says one thing that all above relies on, and writers die, too."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from store.archive.archive import Archive
from store.archive.port import MOST_DELETED, MOST_LISTED, MOST_VALUE_BYTES, ArchiveEntry, mark_of_etag
from tests.support import ROOT
from tests.support.archive.opened import REMOTE, Place
from tests.support.archive.programs.counting import increment
from tests.support.archive.programs.writing import VALUE_BYTES

KEY = "v1/0a/default/00ff/0"

SECONDS = 100.0


async def keys(archive: Archive, prefix: str = "", **options: Any) -> list[str]:
    return [entry.key for entry in await archive.list(prefix, **options)]


async def test_a_large_value_has_the_same_conditions(archive: Archive) -> None:
    first = await archive.put(KEY, bytes(10 << 20), only_if=None)
    assert await archive.put(KEY, b"\1" * (10 << 20), only_if=None) is None
    second = await archive.put(KEY, b"\2" * (10 << 20), only_if=first)
    assert second
    assert await archive.put(KEY, b"\3" * (10 << 20), only_if=first) is None
    assert await archive.get(KEY) == (b"\2" * (10 << 20), second)


async def test_a_list_tells_sizes_and_when_values_were_written(archive: Archive) -> None:
    before = time.time()
    first = await archive.put(KEY, b"x" * 700, only_if=None)
    second = await archive.put(KEY, b"y" * 7000, only_if=first)
    assert second
    (entry,) = await archive.list("v1/")
    assert entry == ArchiveEntry(KEY, 7000, entry.changed, mark_of_etag(second))
    assert before - 2 < entry.changed < time.time() + 2


async def test_pages_end_at_a_thousand(archive: Archive) -> None:
    many = [f"v1/0a/default/{number:04d}/0" for number in range(MOST_LISTED + 5)]
    await asyncio.gather(*(archive.put(key, b"x", only_if=None) for key in many))
    page = await keys(archive)
    assert page == many[:MOST_LISTED]
    assert await keys(archive, after=page[-1]) == many[MOST_LISTED:]
    await archive.delete(*page)
    assert await keys(archive) == many[MOST_LISTED:]


@pytest.mark.parametrize("key", ["", "a//b", "a/../b", "é", "a%2f", "a" * 513])
async def test_a_key_that_not_every_store_takes_is_refused(archive: Archive, key: str) -> None:
    for call in (archive.get(key), archive.put(key, b"", only_if=None), archive.delete(KEY, key)):
        with pytest.raises(ValueError, match="must be parts of A-Z"):
            await call


async def test_what_is_out_of_bounds_is_refused(archive: Archive) -> None:
    with pytest.raises(ValueError, match="larger than 67,108,864"):
        await archive.put(KEY, bytes(MOST_VALUE_BYTES + 1), only_if=None)
    with pytest.raises(ValueError, match="deleted at once"):
        await archive.delete(*[KEY] * (MOST_DELETED + 1))
    for limit in (0, MOST_LISTED + 1):
        with pytest.raises(ValueError, match="a page has"):
            await archive.list("", limit=limit)
    with pytest.raises(ValueError, match="must end with a slash"):
        await archive.list("v1/0")
    with pytest.raises(ValueError, match="must be parts of A-Z"):
        await archive.list("/")


async def test_of_several_processes_none_loses_what_it_added(archive: Archive, place: Place) -> None:
    program = [sys.executable, "-m", "tests.support.archive.programs.counting", place.url, KEY, "12"]
    environment = {**place.environment, "PYTHONPATH": str(ROOT)}
    options = {"env": environment, "cwd": ROOT}
    processes = [await asyncio.create_subprocess_exec(*program, **options) for _ in range(3)]
    await increment(archive, KEY, 12)
    async with asyncio.timeout(SECONDS):
        assert [await process.wait() for process in processes] == [0, 0, 0]
    found = await archive.get(KEY)
    assert found
    assert int(found.value) == 48


async def test_the_probe_finds_it_fit_and_leaves_nothing(archive: Archive, place: Place) -> None:
    warnings = await archive.probe()
    # the tests' Postgres syncs nothing, and says so
    assert [warning.partition(":")[0] for warning in warnings] == (["fsync is off"] if place.kind == "postgres" else [])
    assert await keys(archive) == []


KILLS, KILLS_BESIDE_A_SERVER = 12, 4
"""Where a server has the data, it doesn't matter to it who dies."""

FOLDER = "v1/0a/default"


def written_until_killed(place: Place, folder: str, acknowledged: int) -> Sequence[str]:
    """The keys that a writer has acknowledged until it was killed, which are at least so many."""
    command = [sys.executable, "-m", "tests.support.archive.programs.writing", place.url, folder]
    environment = {**place.environment, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        said = [writer.stdout.readline() for _ in range(acknowledged)]
        writer.kill()
        said += writer.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")]


@pytest.mark.timeout(300)
async def test_what_a_killed_writer_acknowledged_is_there(archive: Archive, place: Place) -> None:
    chance = random.Random(19)
    for kill in range(KILLS_BESIDE_A_SERVER if place.kind in REMOTE else KILLS):
        keys = written_until_killed(place, f"{FOLDER}/{kill}", chance.randint(1, 40))
        assert keys
        there = await asyncio.gather(*(archive.get(key) for key in keys))
        assert [len(found.value) if found else None for found in there] == [VALUE_BYTES] * len(keys)
    assert await archive.put(f"{FOLDER}/after", b"x", only_if=None)
