"""A Redis that dies between any two steps of archiving: nothing is lost, nothing that was deleted comes back, and
whoever is next archives what is left.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.errors import StoreUnavailable
from tests.support.archive.patience import PATIENT
from tests.support.archive.steps import ARCHIVING, Counted
from tests.support.chaos.archived_trees import trees
from tests.support.chaos.fleet import Store
from tests.together.chaos.scenarios.archiving import steps_of_a_pass

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
