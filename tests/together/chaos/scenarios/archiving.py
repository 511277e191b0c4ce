"""Workers that die before any step of archiving, and whoever brings a turn back: nothing is lost, nothing
that was deleted comes back, and whoever is next archives what is left.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from service.commands.serve import join
from service.process import Settings
from service.settings.core import DEFAULT_TENANT
from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from tests.support.archive.patience import PATIENT
from tests.support.archive.steps import ARCHIVING, ASKING, NOTING, Counted
from tests.support.chaos.archived_trees import Trees, trees
from tests.support.chaos.deaths import Scenario, Stage

READING, FORGETTING, FORGETTING_A_TREE = "read", "forget", "forget a tree"

DEEDS: dict[str, Callable[[ConversationHistoryStore, str], Awaitable[object]]] = {
    READING: lambda store, id: store.chain(DEFAULT_TENANT, id),
    FORGETTING: lambda store, id: store.forget(DEFAULT_TENANT, id),
    FORGETTING_A_TREE: lambda store, id: store.forget_tree(DEFAULT_TENANT, id),
}
"""The requests for a turn that has left memory."""


class Death(NamedTuple):
    """Before which step of what a process dies: of archiving or noting, or of a deed; perhaps with a `large` tree."""

    of: str
    step: int
    large: bool = False


async def steps_of_a_pass(made: Trees, archive: Archive) -> int:
    """How many steps another process takes to archive what has changed, where nobody dies."""
    counted = Counted(ARCHIVING)
    await made.end_lease()
    async with made.another(archive, counted) as other:
        await other.archive_due()
        assert not (await other.archive_due()).trees
    await made.check()
    return counted.steps


def archive_of(settings: Settings) -> Archive:
    return open_archive(settings.archive_url, Path("/nowhere"), PATIENT)


@asynccontextmanager
async def grown(stage: Stage, *, older: bool = False, large: bool = False) -> AsyncIterator[tuple[Settings, Trees]]:
    """Trees in a part of the store, of which the archive has a part; or none yet of `older` ones."""
    settings = stage.settings(archive_after_seconds=0)
    place = stage.folder / settings.redis_prefix
    settings = settings.model_copy(update={"archive_url": f"sqlite://{place}"})
    await asyncio.to_thread(join, settings)
    archive = archive_of(settings)
    async with trees(settings.redis_url, settings.redis_prefix, archive, older=older, large=large) as made:
        yield settings, made


async def die(stage: Stage, death: Death) -> None:
    """A process that dies before a step, and what it did is done again."""
    async with grown(stage, older=death.of == NOTING, large=death.large) as (settings, made):
        if death.of in DEEDS:
            await die_amid(stage, settings, made, death)
        else:
            await stage.program.die(settings, death.of, times=death.step)
        await made.archive_all()
        await made.check()


async def die_amid(stage: Stage, settings: Settings, made: Trees, death: Death) -> None:
    """A process that dies before a step of what it does with a turn that has left memory."""
    await made.archive_all()
    await made.leave_memory()
    *_, tip = path = made.paths[made.forked[1]]
    await stage.program.die(settings, ASKING, death.of, tip, times=death.step)
    if death.of == READING:
        assert [*(await made.history.chain(DEFAULT_TENANT, tip)).ids] == path
    with suppress(NotFound):  # it died after it was done
        await DEEDS[death.of](made.history, tip)
    for id in {FORGETTING: [tip], FORGETTING_A_TREE: made.tree_of(tip)}.get(death.of, ()):
        made.is_gone(id)


async def deaths(stage: Stage) -> list[Death]:
    """A death before each step, counted where nobody dies."""
    found: list[Death] = []
    async with grown(stage, large=True) as (settings, made):
        steps = await steps_of_a_pass(made, archive_of(settings))
        found += [Death(ARCHIVING, step + 1, large=True) for step in range(steps)]
    counted = Counted(NOTING)
    async with grown(stage, older=True) as (settings, made), made.another(archive_of(settings), counted) as other:
        while await other.note():
            pass
    found += [Death(NOTING, step + 1) for step in range(counted.steps)]
    for name, deed in DEEDS.items():
        counted = Counted(ASKING)
        async with grown(stage) as (settings, made):
            await made.archive_all()
            await made.leave_memory()
            async with made.another(archive_of(settings), counted) as other:
                await deed(other.history, made.forked[1])
        found += [Death(name, step + 1) for step in range(counted.steps)]
    return found


SCENARIO = Scenario(die, deaths, pushed=Death(ARCHIVING, 7, large=True))
