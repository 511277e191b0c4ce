"""Writers that are killed in the middle: what they said was written is there, and whole."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from store.archive.archive import Archive
from tests.support import ROOT
from tests.support.archive.opened import REMOTE, Place
from tests.support.archive.programs.writing import VALUE_BYTES

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
