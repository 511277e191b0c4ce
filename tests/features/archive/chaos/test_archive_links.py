"""A service whose link to its archive stands still: who needs the archive is told in time that it does not answer, and
nobody else is held up.
"""

import asyncio
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from openai import APIStatusError, AsyncOpenAI
from redis.asyncio import Redis

from service.commands.serve import join
from service.process import Settings
from store.archive.opening import open_archive
from store.archive.port import Bounds
from store.backup.archiving.store_archive import StoreArchive
from tests.support.archive.kept import lose
from tests.support.archive.opened import new_name, place_of
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.lag import worst_lag
from tests.support.service.process import MODEL
from tests.support.store.link import link
from tests.support.waiting import until

ARCHIVE_SECONDS = 3.0
SLACK_SECONDS = 6.0
"""What a busy machine may add."""

READERS = 15
CREATES = 100
WAITING = 16
"""How many turns the process looks for at once."""

MOST_TASKS = 250
"""How many more tasks there may be while the archive stands still: some for each of the readers and of the calls."""

MOST_SECONDS = ARCHIVE_SECONDS / 2
"""How long all plain creates but one of a hundred may take meanwhile: less than anything that waits for the archive."""

ATTEMPTS = 12
"""The machine has other things to do, so the best of some attempts counts."""

SECONDS = 60.0
KEYS = tuple((f"t{number}", f"key-{number}") for number in range(4))
SETTINGS = {
    "archive_after_seconds": 0,
    "max_trees": 0,
    "embedded_worker": True,
    "store_timeout_seconds": 10.0,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["s3", pytest.param("postgres", marks=pytest.mark.full)])
async def test_an_archive_that_stands_still_holds_up_those_alone_that_need_it(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bounded = partial(open_archive, bounds=Bounds(total_seconds=ARCHIVE_SECONDS))
    monkeypatch.setattr("service.features.archive.opening.open_archive_at", bounded)
    monkeypatch.setattr("service.features.archive.opening.StoreArchive", partial(StoreArchive, concurrency=WAITING))
    prefix = f"test-{uuid.uuid4().hex}"
    with place_of(kind, tmp_path) as ground:
        place = ground.apart(new_name())
        async with link(place.port, seed=19) as between, Redis.from_url(redis_url) as redis:
            through = place.through(between.port)
            for name, value in through.environment.items():
                monkeypatch.setenv(name, value)
            where = {
                "redis_url": redis_url,
                "redis_prefix": prefix,
                "api_keys": KEYS,
                "archive_url": through.url,
                "data_dir": tmp_path,
            }
            settings = Settings.model_validate(SETTINGS | where | {"lease_seconds": 30.0})
            await asyncio.to_thread(join, settings)
            async with serving(settings, scripted([answer("Fine.")])) as inside:
                clients = [inside.client(key) for _, key in KEYS]
                away = [[await say(client) for _ in range(READERS)] for client in clients]
                unarchived = f"{prefix}:{{00}}:unarchived"
                await until(lambda: redis.zcard(unarchived), SECONDS, wanted=lambda left: left == 0)
                await lose(redis, prefix)
                tasks, waited, ended = tasks_of_the_service(), list[float](), asyncio.Event()
                late = asyncio.create_task(worst_lag(asyncio.ensure_future(ended.wait())))
                between.stands_still = True
                async with asyncio.TaskGroup() as readers:
                    for client, ids in zip(clients, away, strict=True):
                        for id in ids:
                            readers.create_task(read_in_vain(client, id, waited, ended))
                    await until(lambda: len(waited) >= READERS * len(KEYS), SECONDS)
                    slowest = [await slowest_of(clients[0])]
                    while slowest[-1] >= MOST_SECONDS and len(slowest) < ATTEMPTS:
                        slowest.append(await slowest_of(clients[0]))
                    most = tasks_of_the_service() - tasks
                    ended.set()
                assert slowest[-1] < MOST_SECONDS, f"plain creates took {slowest}"
                assert most < MOST_TASKS, "work piles up"
                assert max(waited) < ARCHIVE_SECONDS + SLACK_SECONDS + await late
                between.stands_still = False
                between.cut()
                await until(lambda: tasks_of_the_service() - tasks < WAITING, SECONDS, "some are left")
                for client, (id, *_) in zip(clients, away, strict=True):
                    found = partial(client.responses.retrieve, id)
                    assert (await until(found, SECONDS, passing=APIStatusError)).output_text == "Fine."
                    await client.close()


async def say(client: AsyncOpenAI) -> str:
    return (await client.responses.create(model=MODEL, input="Hello")).id


async def read_in_vain(client: AsyncOpenAI, id: str, waited: list[float], ended: asyncio.Event) -> None:
    """Ask for what has left memory again and again, whenever the answer says so, until it is `ended`."""
    while not ended.is_set():
        begun = time.monotonic()
        with pytest.raises(APIStatusError) as refused:
            await client.responses.retrieve(id)
        waited.append(time.monotonic() - begun)
        assert (refused.value.status_code, refused.value.code) == (503, "archive_unavailable")
        await asyncio.sleep(float(refused.value.response.headers["retry-after"]))


def tasks_of_the_service() -> int:
    """How many tasks there are in this loop, but for those of the link itself."""
    return sum("Link." not in getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())


async def slowest_of(client: AsyncOpenAI) -> float:
    """How long a plain create takes, in seconds: of a hundred, the second slowest."""
    taken: list[float] = []
    for _ in range(CREATES):
        begun = time.perf_counter()
        await say(client)
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[-CREATES // 100]
