"""Processes that archive and make a catalogue at once, and are killed: it is right soon after."""

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from store.backup.upkeep.restore import Restore
from store.backup.upkeep.verifying import Verify
from store.catalogue.cataloguing import WHOLE
from tests.support import ROOT
from tests.support.archive.kept import kept
from tests.support.archive.opened import Place, opened
from tests.support.archive.programs.listing import BACKUP, archive_all, listed_at
from tests.support.lengths import lengths
from tests.support.store.backups import RELEASE, back_up
from tests.support.store.sample import grow

PROGRAM = (sys.executable, "-m", "tests.support.archive.programs.listing")


@pytest.fixture(params=["sqlite"])
def ground(tmp_path: Path) -> Place:
    return Place("sqlite", f"sqlite://{tmp_path}")


async def killed(deeds: Sequence[str], url: str, prefix: str, folder: Path, seconds: float) -> None:
    """Have some processes do these deeds at once, each of which is killed so many seconds after it began or sooner."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    async def run(deed: str) -> None:
        program = [*PROGRAM, deed, url, prefix, str(folder)]
        process = await asyncio.create_subprocess_exec(
            *program, env=environment, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begins\n"
        await asyncio.sleep(random.uniform(0, seconds))  # a kill at any moment
        process.kill()
        assert await process.wait() == -9

    await asyncio.gather(*map(run, deeds))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", lengths(1, 20))
@pytest.mark.parametrize(
    "deeds",
    [("archive", "whole", "whole"), ("archive", "restore", "expire"), ("archive", "import"), ("import", "import")],
    ids="+".join,
)
async def test_a_catalogue_is_right_after_kills(
    server_url: str, prefix: str, tmp_path: Path, deeds: Sequence[str], rounds: int
) -> None:
    async with opened(Place("sqlite", f"sqlite://{tmp_path}/before")) as values:
        async with kept(server_url, f"{prefix}-before", values) as before:
            for number in range(40):
                await grow(before.store, f"saved {number}", "two")
            await before.archive_all()
        await back_up(server_url, f"{prefix}-before", tmp_path / BACKUP, archive=values)
    made, cataloguer = await listed_at(server_url, prefix, tmp_path)
    await archive_all(made)
    async for _ in cataloguer.make_whole():
        pass
    await made.archive.close()
    await made.store.close()
    for _ in range(rounds):
        await killed(deeds, server_url, prefix, tmp_path, 1.5)
        made, cataloguer = await listed_at(server_url, prefix, tmp_path)
        if "restore" in deeds:
            async for _ in Restore(made.store, made.archive).run(tmp_path / BACKUP, release=RELEASE):
                pass
        await archive_all(made)
        if "import" not in deeds:  # what restores and expires is done again, or compared each day
            async for _ in cataloguer.make_whole():
                pass
        assert await cataloguer.catalogue.note(WHOLE) == await cataloguer.about() != ""
        (*_, report) = [each async for each in Verify(made.archive, made.store).run(most=None, repair=False)]
        assert report.faults == {}
        assert report.trees > 0
        await made.archive.close()
        await made.store.close()
