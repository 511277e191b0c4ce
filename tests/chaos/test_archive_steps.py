"""An archiver, its archive and its store that die between any two steps of archiving: nothing is lost, nothing that was
deleted comes back, and whoever is next archives what is left.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path

import pytest

from service.commands.serve import join
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings, load_settings
from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.embedded import EmbeddedServer
from store.errors import ArchiveUnavailable, NotFound, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from tests.support.archive.killed import Mortal, mortal
from tests.support.archive.opened import REMOTE, open_at
from tests.support.archive.patience import PATIENT
from tests.support.chaos.archive_steps import ARCHIVING, ASKING, CALL, NOTING, Counted
from tests.support.chaos.archived_trees import Trees, trees
from tests.support.chaos.deaths import each_dies
from tests.support.chaos.fleet import Store
from tests.support.chaos.mortals import Mortals
from tests.support.chaos.storm import STEADY

SECONDS = 60.0

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Callable[[str], Settings]]:
    """Makes settings over one server, with an empty part of it and an archive of its own for each prefix."""
    with EmbeddedServer(tmp_path / "store") as server:

        def make(prefix: str) -> Settings:
            made = load_settings(
                redis_url=server.url,
                key_prefix=prefix,
                archive_url=f"sqlite://{tmp_path / prefix}",
                archive_after_seconds=0,
                **STEADY,
            )
            join(made)
            return made

        yield make


async def steps_of_a_pass(made: Trees, archive: Archive, of: str = ARCHIVING) -> int:
    """How many such steps another process takes to archive what has changed, where nobody dies."""
    counted = Counted(of)
    await made.end_lease()
    async with made.another(archive, counted) as other:
        await other.archive_due()
        assert not (await other.archive_due()).trees
    await made.check()
    return counted.steps


def archive_of(settings: Settings) -> Archive:
    return open_archive(settings.archive_url, Path("/nowhere"), PATIENT)


def grown(settings: Settings, *, older: bool = False, large: bool = False) -> AbstractAsyncContextManager[Trees]:
    """Trees in a store, of which the archive has a part; or none yet of `older` ones."""
    return trees(settings.redis_url, settings.key_prefix, archive_of(settings), older=older, large=large)


async def die_and_be_replaced(mortals: Mortals, settings: Settings, step: int, *, large: bool) -> None:
    """A worker that dies before a step of archiving, perhaps amid a large tree."""
    async with grown(settings, large=large) as made:
        await mortals.die(settings, ARCHIVING, times=step)
        await made.archive_all()
        await made.check()


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.full)])
async def test_a_worker_that_dies_before_any_step_of_archiving_loses_nothing(
    settings: Callable[[str], Settings], every: int
) -> None:
    whole = await asyncio.to_thread(settings, "whole")
    large = every == 1
    async with grown(whole, large=large) as made:
        steps = await steps_of_a_pass(made, archive_of(whole))
    await each_dies(range(1, steps + 1, every), partial(die_and_be_replaced, large=large), settings)


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.full)])
async def test_a_worker_that_dies_before_any_step_of_noting_what_was_there_before_leaves_it_to_the_next(
    settings: Callable[[str], Settings], every: int
) -> None:
    whole = await asyncio.to_thread(settings, "whole")
    counted = Counted(NOTING)
    async with grown(whole, older=True) as made, made.another(archive_of(whole), counted) as other:
        while await other.note():
            pass

    async def die(program: Mortals, own: Settings, step: int) -> None:
        async with grown(own, older=True) as made:
            await program.die(own, NOTING, times=step)
            await made.archive_all()
            await made.check()

    await each_dies(range(1, counted.steps + 1, every), die, settings)


READING, FORGETTING, FORGETTING_A_TREE = "read", "forget", "forget a tree"

Deeds = dict[str, Callable[[ConversationHistoryStore, str], Awaitable[object]]]

DEEDS: Deeds = {
    READING: lambda store, id: store.chain(DEFAULT_TENANT, id),
    FORGETTING: lambda store, id: store.forget(DEFAULT_TENANT, id),
    FORGETTING_A_TREE: lambda store, id: store.forget_tree(DEFAULT_TENANT, id),
}


async def die_amid(mortals: Mortals, settings: Settings, step: int, deed: str) -> None:
    """A process that dies before a step of what it does with a turn that has left memory; it is done again."""
    async with grown(settings) as made:
        await made.archive_all()
        await made.leave_memory()
        *_, tip = path = made.paths[made.forked[1]]
        await mortals.die(settings, ASKING, deed, tip, times=step)
        if deed == READING:
            assert [*(await made.history.chain(DEFAULT_TENANT, tip)).ids] == path
        with suppress(NotFound):  # it died after it was done
            await DEEDS[deed](made.history, tip)
        for id in [tip] if deed == FORGETTING else made.tree_of(tip) if deed == FORGETTING_A_TREE else ():
            made.is_gone(id)
        await made.archive_all()
        await made.check()


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("deed", DEEDS)
async def test_who_dies_before_any_step_of_what_brings_a_turn_back_leaves_it_whole(
    settings: Callable[[str], Settings], deed: str, every: int
) -> None:
    whole = await asyncio.to_thread(settings, "whole")
    async with grown(whole) as made:
        await made.archive_all()
        await made.leave_memory()
        counted = Counted(ASKING)
        async with made.another(archive_of(whole), counted) as other:
            await DEEDS[deed](other.history, made.forked[1])
    await each_dies(range(1, counted.steps + 1, every), partial(die_amid, deed=deed), settings)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.full)])
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


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("every", [40, pytest.param(2, marks=pytest.mark.full)])
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
