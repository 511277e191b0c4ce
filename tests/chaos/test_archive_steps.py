"""A Redis and an archive's server that die between any two steps of archiving: nothing is lost, nothing that was
deleted comes back, and whoever is next archives what is left.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from service.settings.core import DEFAULT_TENANT
from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.embedded import EmbeddedServer
from store.errors import ArchiveUnavailable, StoreUnavailable
from store.keys import digits_of
from tests.chaos.scenarios.archiving import steps_of_a_pass
from tests.support.archive.killed import Mortal, mortal
from tests.support.archive.opened import REMOTE, open_at
from tests.support.archive.patience import PATIENT
from tests.support.archive.steps import ARCHIVING, CALL, Counted
from tests.support.chaos.archived_trees import trees
from tests.support.chaos.fleet import Store

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("every", [14, pytest.param(1, marks=pytest.mark.full)])
async def test_a_redis_that_is_killed_before_any_step_of_archiving_loses_nothing(tmp_path: Path, every: int) -> None:
    store = Store(tmp_path, "always")

    async def kill() -> None:
        store.kill()
        store.launch()

    def archive(step: int) -> Archive:
        return open_archive(f"sqlite://{tmp_path}/step-{step}", tmp_path, PATIENT)

    store.launch()
    try:
        await store.ready()
        async with trees(store.url, "step-0", archive(0)) as made:
            steps = await steps_of_a_pass(made, archive(0))
        for step in range(1, steps + 1, every):
            async with trees(store.url, f"step-{step}", archive(step)) as made:
                await made.end_lease()
                counted = Counted(ARCHIVING, step, kill)
                async with made.another(archive(step), counted) as other:
                    while counted.steps < step:
                        with suppress(StoreUnavailable):
                            await other.archive_due()
                    await store.ready()
                await made.archive_all()
                await made.check()
    finally:
        store.kill()


@pytest.mark.parametrize(
    ("kind", "every"), [("s3", 40), *(pytest.param(kind, 2, marks=pytest.mark.full) for kind in REMOTE)]
)
async def test_an_archive_that_is_killed_before_any_of_its_calls_loses_nothing_and_nobody_says_that_it_did(
    tmp_path: Path, kind: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer(tmp_path / "store") as redis:
        with mortal(kind, tmp_path / "0", monkeypatch) as server:
            async with trees(redis.url, "step-0", open_at(server.place)) as made:
                steps = await steps_of_a_pass(made, open_at(server.place), CALL + ARCHIVING)
        for step in range(1, steps + 1, every):
            with mortal(kind, tmp_path / f"{step}", monkeypatch) as server:
                await kill_before(step, redis.url, server)


async def kill_before(step: int, redis_url: str, server: Mortal) -> None:
    """Kill the server of an archive before a call of it, ask it, and start it again."""

    async def kill() -> None:
        server.kill()

    async with trees(redis_url, f"step-{step}", open_at(server.place)) as made:
        await made.end_lease()
        counted = Counted(CALL + ARCHIVING, step, kill)
        async with made.another(open_at(server.place), counted) as other:
            with suppress(ArchiveUnavailable):
                await other.archive_due()
            if counted.steps < step:  # it made a call less this time: all is done before the last one
                await kill()
        with pytest.raises(ArchiveUnavailable):
            await made.archive.turns.find(DEFAULT_TENANT, digits_of(made.forked[0]))
        server.start()
        await made.archive_all()
        await made.check()
