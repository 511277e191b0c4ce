"""A walk over everything that is kept, over an archive and a memory that has room for little, while APIs and the store
die and are frozen, and the archive is away, silent or slow: no acknowledged turn is lost, and none that was deleted is
readable, from memory or from the archive alone.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from redis.asyncio import Redis

from store.redis.connection import connect
from tests.support.archive.kept import lose
from tests.support.archive.opened import KINDS, REMOTE, Place, new_name, place_of
from tests.support.chaos.fleet import Fleet, running
from tests.support.chaos.storm import QUICK
from tests.support.chaos.walk import PROVE, Walk
from tests.support.chat.standin import chatting
from tests.support.store.link import Link, link
from tests.support.store.verdict import checked
from tests.support.waiting import until

SECONDS = 60.0
MOST_SECONDS_HURT = 3.0
MODEL = "llama-4"
PROCESSES = ("api", "store", "freeze")
ARCHIVE = ("is away", "stands still", "loses replies", "is slow")
FEW = {"max_responses": 40, "shards": 2, "archive_after_seconds": 0}
"""Nearly all leaves memory."""


class Size(NamedTuple):
    """How many turns are acknowledged, how often there is trouble meanwhile, and of which kinds."""

    turns: int
    times: int
    kinds: Sequence[str]


async def hurt(fleet: Fleet, archive: Link | None, kind: str) -> None:
    """One trouble, which is over in the end but for who is just starting."""
    api, seconds = fleet.chance.choice(fleet.apis), fleet.chance.uniform(0, MOST_SECONDS_HURT)
    match kind:
        case "api":
            fleet.kill(api)
            fleet.launch(api)
            await api.ready()
        case "store":
            fleet.kill(fleet.store)
            fleet.launch(fleet.store)
            await fleet.store.ready()
        case "all":
            for each in (*fleet.apis, fleet.store):
                fleet.kill(each)
            for each in (fleet.store, *fleet.apis):
                fleet.launch(each)
                await each.ready()
        case "freeze":
            fleet.freeze(api)
            await asyncio.sleep(seconds)  # for so long it stands still
            fleet.wake(api)
        case _ if archive is not None:
            fleet.note(f"the archive {kind} for {seconds:.1f} s")
            archive.refuses = kind == "is away"
            archive.stands_still = kind == "stands still"
            archive.losses = 0.3 if kind == "loses replies" else 0.0
            archive.delay_seconds = 0.5 if kind == "is slow" else 0.0
            if archive.refuses:
                archive.cut()
            await asyncio.sleep(seconds)  # for so long it is hurt
            heal(archive)
        case _:
            raise ValueError(kind)


def heal(archive: Link) -> None:
    archive.refuses = archive.stands_still = False
    archive.losses = archive.delay_seconds = 0.0
    archive.cut()


@asynccontextmanager
async def hurtable(place: Place) -> AsyncIterator[tuple[Place, Link | None]]:
    """The place by a link, where it has a server."""
    if not place.port:
        yield place, None
        return
    async with link(place.port, seed=7) as between:
        yield place.through(between.port), between


async def walk(folder: Path, place: Place, archive: Link | None, size: Size, seed: int) -> None:
    async with chatting(PROVE) as model:
        engines = folder / "engines.json"
        engines.write_text(f'{{"engines": [{{"name": "{MODEL}", "kind": "chat", "urls": ["{model.url}"]}}]}}')
        settings = QUICK | FEW | {"archive_url": place.url, "engines": str(engines), "fsync": "always"}
        async with running(folder, seed, workers=0, **settings) as fleet:
            walk = Walk(fleet, MODEL, size.turns)
            try:
                order: list[str] = []
                for number in range(size.times):
                    await walk.reach(number / size.times)
                    order = order or fleet.chance.sample(size.kinds, len(size.kinds))
                    await hurt(fleet, archive, order.pop())
                await walk.end()
                await walk.check()
                redis = connect(fleet.store.url)
                assert isinstance(redis, Redis)
                prefix = fleet.settings.redis_prefix
                waiting = [f"{prefix}:{{0{shard}}}:unarchived" for shard in range(FEW["shards"])]
                for each in waiting:
                    await until(lambda key=each: redis.zcard(key), SECONDS, wanted=lambda left: left == 0)
                report = await checked(fleet.store.url, prefix, FEW["shards"])
                assert report.found == 0, report
                await lose(redis, prefix)
                await redis.aclose()
                await walk.check()
            finally:
                await walk.close()


SHORT, LONG = Size(60, 3, PROCESSES), Size(1500, 30, (*PROCESSES, "all", *ARCHIVE))


@pytest.mark.parametrize(
    ("kind", "size", "seed"),
    [
        pytest.param("sqlite", SHORT, 1, marks=pytest.mark.timeout(120)),
        *(
            pytest.param(kind, LONG, seed, marks=(pytest.mark.full, pytest.mark.timeout(1800)))
            for seed, kind in enumerate(REMOTE, 2)
        ),
    ],
    ids=KINDS,
)
async def test_no_acknowledged_turn_is_lost_and_no_deleted_one_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: Size, seed: int
) -> None:
    with place_of(kind, tmp_path / "archive") as ground:
        async with hurtable(ground.apart(new_name())) as (place, between):
            for name, value in place.environment.items():
                monkeypatch.setenv(name, value)
            await walk(tmp_path, place, between, size, seed)
