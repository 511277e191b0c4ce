"""An API, workers, their Redis and the server of their archive, each killed while background responses continue turns
that have left memory: nothing is lost, nothing that is there is a 404, and all of it is archived in the end.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from store.redis.connection import connect
from tests.support.archive.killed import Mortal, mortal
from tests.support.archive.opened import REMOTE
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, Process, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.storm import SETTINGS
from tests.support.oracles.event_grammar import Json
from tests.support.waiting import until

CLIENTS = 4
FEW = 12
"""How many responses memory has room for."""

MORE = 4
"""How many responses end between two kills."""

SECONDS = 60.0

KEPT = SETTINGS | {"demo_tokens_per_second": 150, "max_responses": FEW, "archive_after_seconds": 0.1}

pytestmark = pytest.mark.timeout(600)


class Clients:
    """Clients whose every background response continues one from before, or begins a conversation."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.ended: dict[str, Json] = {}
        """Responses by their ids, as their followers saw them end."""
        self.deleted: set[str] = set()
        self.made = 0

    async def talk(self) -> None:
        """Ask for one after the other, for ever; now and then, delete one."""
        own: list[str] = []
        while True:
            parent = self._fleet.chance.choice([*own, None])
            follower = Follower(self._urls, self._fleet.chance)
            more: dict[str, Any] = {} if parent is None else {"previous_response_id": parent}
            await follower.create(input="Count to 5.", **more)
            assert follower.id is not None
            assert follower.response["status"] == "completed", follower.response
            self.ended[follower.id] = follower.response
            own.append(follower.id)
            self.made += 1
            if self.made % MORE == 0:
                await self._delete(own.pop())

    def _urls(self) -> list[str]:
        return [api.url for api in self._fleet.apis]

    async def _delete(self, id: str) -> None:
        """Delete one; whoever hears no answer asks again, and is told that it is gone."""
        self.ended.pop(id)
        async with httpx.AsyncClient(base_url=self._urls()[0], timeout=SECONDS, trust_env=False) as http:

            async def is_deleted() -> bool:
                return (await http.delete(f"/v1/responses/{id}")).status_code in (200, 404)

            await until(is_deleted, SECONDS, "it can't be deleted", passing=httpx.TransportError)
        self.deleted.add(id)


class Watch:
    """What a test sees of a fleet: what its Redis has, and what an API says."""

    def __init__(self, fleet: Fleet, http: httpx.AsyncClient, redis: Redis) -> None:
        self._prefix, self._http, self.redis = fleet.settings.key_prefix, http, redis

    async def in_memory(self, id: str) -> bool:
        return bool(await self.redis.exists(f"{self._prefix}:{{00}}:t:default:node:{id.partition('_')[2]}"))

    async def at_work(self) -> bool:
        """Whether somebody archives, and isn't done."""
        waiting = await self.redis.zcard(f"{self._prefix}:{{00}}:unarchived")
        return waiting > 0 and bool(await self.redis.exists(f"{self._prefix}:{{00}}:archiver"))

    async def all_archived(self) -> bool:
        return await self.redis.zcard(f"{self._prefix}:{{00}}:unarchived") == 0

    async def told(self, id: str) -> tuple[int, Json]:
        """What the API says of a response."""
        answer = await self._http.get(f"/v1/responses/{id}")
        return answer.status_code, answer.json()


@asynccontextmanager
async def watched(fleet: Fleet) -> AsyncIterator[Watch]:
    redis = connect(fleet.store.url)
    assert isinstance(redis, Redis)
    async with redis, httpx.AsyncClient(base_url=fleet.apis[0].url, timeout=SECONDS, trust_env=False) as http:
        yield Watch(fleet, http, redis)


async def without_its_archive(fleet: Fleet, server: Mortal, watch: Watch, away: str) -> None:
    """The archive is killed, and an API that starts meanwhile: what has left memory is not said to be gone, until the
    archive is back.
    """
    server.kill()
    (api,) = fleet.apis
    fleet.kill(api)
    fleet.launch(api)
    await api.ready()
    for _ in range(3):
        status, body = await watch.told(away)
        assert (status, body["error"]["code"]) == (503, "archive_unavailable"), body
    server.start()
    await until(lambda: _found(watch, away), SECONDS, "it doesn't come back")


async def _found(watch: Watch, id: str) -> bool:
    return (await watch.told(id))[0] == 200


async def kill_all(folder: Path, server: Mortal, *, seed: int, rounds: int) -> None:
    """Kill each process and each server once a round, while somebody archives and others continue what is archived."""
    async with running(folder, seed, apis=1, fsync="always", archive_url=server.place.url, **KEPT) as fleet:
        clients = Clients(fleet)
        async with watched(fleet) as watch:
            apart = Follower(lambda: [fleet.apis[0].url], fleet.chance)
            await apart.create(input="Count to 3.")  # which nobody continues
            assert apart.id is not None
            talking = [asyncio.create_task(clients.talk()) for _ in range(CLIENTS)]
            try:
                await until(lambda: _away(watch, str(apart.id)), SECONDS, "nothing leaves memory")
                victims: list[Process | None] = [fleet.workers[0], None, fleet.workers[1], fleet.store]
                for victim in victims * rounds:
                    wanted = clients.made + MORE
                    await until(lambda wanted=wanted: _more(clients, talking, wanted), SECONDS, "nobody goes on")
                    await until(watch.at_work, SECONDS, "nobody archives")
                    if victim is None:
                        await without_its_archive(fleet, server, watch, str(apart.id))
                    else:
                        fleet.kill(victim)
                        fleet.launch(victim)
                wanted = clients.made + MORE
                await until(lambda: _more(clients, talking, wanted), SECONDS, "nobody goes on")
            finally:
                for task in talking:
                    task.cancel()
                await asyncio.gather(*talking, return_exceptions=True)
            await check(fleet, clients, watch)


def _more(clients: Clients, talking: list[asyncio.Task[None]], wanted: int) -> bool:
    for task in talking:
        if task.done():
            task.result()
    return clients.made >= wanted


async def _away(watch: Watch, id: str) -> bool:
    return not await watch.in_memory(id)


async def check(fleet: Fleet, clients: Clients, watch: Watch) -> None:
    """All is archived, and told as it ended, also once Redis has lost all; what was deleted is gone."""
    for member in fleet.members:
        await member.ready()
    async with Aftermath(fleet.settings) as aftermath:
        await until(lambda: aftermath.left_over(timed=False), SECONDS, "jobs are left", wanted=lambda left: left == [])
        await until(watch.all_archived, SECONDS, "some are not archived")
        assert await aftermath.complaints() == []
    for lost in (False, True):
        if lost:
            await watch.redis.flushall()
        for id, response in clients.ended.items():
            status, body = await watch.told(id)
            assert (status, body.get("output")) == (200, response["output"]), (id, lost)
        for id in clients.deleted:
            assert (await watch.told(id))[0] == 404
    assert all("Traceback" not in member.log for member in fleet.members)


@pytest.mark.parametrize(
    ("kind", "rounds"), [("s3", 1), *(pytest.param(kind, 4, marks=pytest.mark.full) for kind in REMOTE)]
)
async def test_whoever_is_killed_while_archived_turns_are_continued_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rounds: int
) -> None:
    with mortal(kind, tmp_path / "archive", monkeypatch) as server:
        await kill_all(tmp_path, server, seed=19, rounds=rounds)
