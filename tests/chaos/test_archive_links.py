"""A service whose link to its archive is slow, is cut, loses replies or stands still: nothing is lost, who needs the
archive is told in time that it does not answer, and nobody else is held up.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI
from redis.asyncio import Redis

from service.commands.serve import join
from service.settings.settings import Settings
from store.archive.opening import open_archive
from store.archive.port import Bounds
from store.backup.archiving.store_archive import StoreArchive
from store.keys import digits_of
from tests.support.archive.link import Link, link
from tests.support.archive.opened import Place, new_name, place_of
from tests.support.archive.stored import lose
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.waiting import until

FEW = 30
"""How many responses memory has room for: of each client, those that it continues, and some more."""

CLIENTS = 4
EACH = 20
"""How many responses each of them makes over a bad link."""


ARCHIVE_SECONDS = 1.0
SLACK_SECONDS = 2.0
"""What a busy machine may add."""

READERS = 15
CREATES = 100
WAITING = 16
"""How many turns the process looks for at once."""

MOST_TASKS = 250
"""How many more tasks there may be while the archive stands still: some for each of the readers and of the calls."""

MOST_SECONDS = ARCHIVE_SECONDS / 2
"""How long all plain creates but one of a hundred may take meanwhile: less than anything that waits for the archive."""

ATTEMPTS = 5
"""The machine has other things to do, so the best of some attempts counts."""

SECONDS = 60.0

KEYS = tuple((f"t{number}", f"key-{number}") for number in range(4))

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["s3", pytest.param("postgres", marks=pytest.mark.full)])
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Where archives of a kind are."""
    with place_of(request.param, tmp_path_factory.mktemp(request.param)) as place:
        yield place


class Served:
    """A service behind a link to its archive."""

    def __init__(self, url: str, between: Link, redis: Redis, prefix: str, clients: list[AsyncOpenAI]) -> None:
        self.url, self.between, self.clients = url, between, clients
        self._redis, self._prefix = redis, prefix

    async def has(self, tenant: int, id: str) -> bool:
        """Whether a turn of a tenant is in memory."""
        key = f"{self._prefix}:{{00}}:t:{KEYS[tenant][0]}:node:{digits_of(id)}"
        return bool(await self._redis.exists(key))

    async def all_archived(self) -> None:
        """Return once the archive lacks nothing."""
        await until(
            lambda: self._redis.zcard(f"{self._prefix}:{{00}}:unarchived"), SECONDS, wanted=lambda left: left == 0
        )

    async def leave_memory(self) -> None:
        await self.all_archived()
        await lose(self._redis, self._prefix)


@asynccontextmanager
async def served(
    redis_url: str, ground: Place, environment: pytest.MonkeyPatch, seconds: float = ARCHIVE_SECONDS, **more: Any
) -> AsyncIterator[Served]:
    environment.setattr("service.process.open_archive_at", partial(open_archive, bounds=Bounds(total_seconds=seconds)))
    environment.setattr("service.process.StoreArchive", partial(StoreArchive, concurrency=WAITING))
    prefix, place = f"test-{uuid.uuid4().hex}", ground.apart(new_name())
    async with link(place.port, seed=19) as between:
        through = place.through(between.port)
        for name, value in through.environment.items():
            environment.setenv(name, value)
        settings = Settings.model_validate(
            {
                "redis_url": redis_url,
                "key_prefix": prefix,
                "api_keys": KEYS,
                "archive_url": through.url,
                "archive_after_seconds": 0,
                "max_trees": 0,
                "worker": True,
                "store_timeout_seconds": 10.0,
                "lease_seconds": 30.0,
                "max_wait_seconds": 0,
                **more,
            }
        )
        await asyncio.to_thread(join, settings)
        redis: Redis = Redis.from_url(redis_url)
        async with redis, serving(settings, scripted([answer("Fine.")])) as inside:
            clients = [inside.client(key) for _, key in KEYS]
            try:
                yield Served(inside.url, between, redis, prefix, clients)
            finally:
                for client in clients:
                    await client.close()


async def say(client: AsyncOpenAI, after: str | None = None) -> str:
    made = await client.responses.create(model=MODEL, input="Hello", previous_response_id=after)
    assert made.output_text == "Fine."
    return made.id


async def persevering(client: AsyncOpenAI, after: str | None = None) -> str:
    """The id of a new response, once there is room for it and the archive answers."""

    async def said() -> str | None:
        try:
            return await say(client, after)
        except APIStatusError as error:
            if error.code not in ("store_full", "archive_unavailable"):
                raise
            return None

    return str(await until(said, SECONDS))


async def test_over_a_link_that_loses_replies_and_is_cut_nothing_is_lost(
    redis_url: str, ground: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(redis_url, ground, monkeypatch, max_responses=FEW) as service:
        service.between.losses = 0.1
        kept: list[tuple[AsyncOpenAI, str]] = []
        deleted: list[tuple[AsyncOpenAI, str]] = []

        async def talk(client: AsyncOpenAI, chance: Random) -> None:
            own: list[str] = []
            for number in range(EACH):
                own.append(await persevering(client, chance.choice([*own, None])))
                if number % 4 == 3:
                    service.between.cut()
                if number % 5 == 4:
                    gone = own.pop(0)
                    await until(lambda gone=gone: delete(client, gone), SECONDS)
                    deleted.append((client, gone))
            kept.extend((client, id) for id in own)

        await asyncio.gather(*(talk(service.clients[n], Random(n)) for n in range(CLIENTS)))
        await service.all_archived()
        assert service.between.lost
        service.between.losses = 0.0
        await service.leave_memory()
        for client, id in kept:
            assert (await client.responses.retrieve(id)).output_text == "Fine."
        for client, id in deleted:
            with pytest.raises(APIStatusError, match="404"):
                await client.responses.retrieve(id)


async def delete(client: AsyncOpenAI, id: str) -> bool:
    """Whether a response is deleted; one whose deletion was heard of by nobody is asked for again."""
    try:
        await client.responses.delete(id)
    except APIStatusError as error:
        return error.status_code == 404
    return True


async def test_an_archive_that_stands_still_holds_up_those_alone_that_need_it(
    redis_url: str, ground: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(redis_url, ground, monkeypatch) as service:
        away = [[await say(client) for _ in range(READERS)] for client in service.clients]
        await service.leave_memory()
        tasks, waited = tasks_of_the_service(), list[float]()
        ended = asyncio.Event()
        service.between.stands_still = True
        async with asyncio.TaskGroup() as readers:
            for client, ids in zip(service.clients, away, strict=True):
                for id in ids:
                    readers.create_task(read_in_vain(client, id, waited, ended))
            await until(lambda: len(waited) >= READERS * len(KEYS), SECONDS)
            slowest = [await slowest_of(service.clients[0])]
            while slowest[-1] >= MOST_SECONDS and len(slowest) < ATTEMPTS:
                slowest.append(await slowest_of(service.clients[0]))
            most = tasks_of_the_service() - tasks
            ended.set()
        assert slowest[-1] < MOST_SECONDS, f"plain creates took {slowest}"
        assert most < MOST_TASKS, "work piles up"
        assert max(waited) < ARCHIVE_SECONDS + SLACK_SECONDS
        service.between.stands_still = False
        service.between.cut()
        await until(lambda: tasks_of_the_service() - tasks < WAITING, SECONDS, "some are left")
        for client, (id, *_) in zip(service.clients, away, strict=True):
            found = partial(client.responses.retrieve, id)
            assert (await until(found, SECONDS, passing=APIStatusError)).output_text == "Fine."


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
