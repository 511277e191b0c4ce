"""Two releases on one store: what one has queued, half written, stored or sealed, the other takes up and goes on with.

The older one is taken out of the repository's history. It is the last whose queue has no number of its format.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from service.commands.joining import join
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.layout import LAYOUT
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, Member, running
from tests.support.chaos.follower import Follower
from tests.support.chaos.releases import extracted
from tests.support.chaos.storm import SETTINGS
from tests.support.oracles.event_grammar import Json
from tests.support.service.process import MODEL
from tests.support.store.audit import complaints
from tests.support.store.programs.talking import RESPONSES
from tests.support.store.sample import grow, said
from tests.support.store.servers import server
from tests.support.store.verdict import checked
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

OLDER = "1fcb5d4"
"""The commit whose processes take part."""

BEFORE_SHARES = "8fdfa32"
"""The commit that talks beside this one over the same conversations."""

BEFORE_DICTIONARIES = "2c7c695"
"""The last commit that knows the first layout alone."""

OUTDATED = {"leaf", "no-node", "index"}
"""What fsck says of a place that the older release didn't know, of what it used, continued or removed."""

SECONDS = 90.0
NEWS = 5
"""How many events a response is ahead before its worker is killed."""

COUNT = "Count to 60, one number a line."
NUMBERS = "\n".join(map(str, range(1, 61)))
SCHEMA: Json = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("who", "where", "when")},
    "required": ["who", "where", "when"],
    "additionalProperties": False,
}
FUNCTION: Json = {"type": "function", "name": "file_report", "parameters": SCHEMA, "strict": True}

REQUESTS: dict[str, Json] = {
    "counting": {"input": COUNT},
    "with an id": {"input": COUNT, "request_id": "mine"},
    "a schema": {
        "input": "Report.",
        "text": {"format": {"type": "json_schema", "name": "report", "schema": SCHEMA, "strict": True}},
    },
    "a strict function": {"input": "Use the file_report tool.", "tools": [FUNCTION]},
    "sealed": {"input": COUNT, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}},
    "logprobs": {"input": COUNT, "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "compaction": {"input": COUNT, "context_management": [{"type": "compaction", "compact_threshold": 1000}]},
    "compaction by request": {"input": [{"role": "user", "content": "Hello"}, {"type": "compaction_trigger"}]},
    "with all its fields": {
        "input": COUNT,
        "metadata": {"a": "b"},
        "service_tier": "priority",
        "prompt_cache_key": "k",
        "stop": ["a word"],
    },
}
"""Bodies whose plans, journals and turns have something of their own in them. All have a parent."""

FEW = ("counting", "sealed", "compaction", "with all its fields")
"""Those of the short form."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages of the older release."""
    return extracted(OLDER, tmp_path_factory.mktemp("older"))


@pytest.fixture(scope="module")
def before_shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the last release with one order of eviction for all tenants."""
    return extracted(BEFORE_SHARES, tmp_path_factory.mktemp("before-shares"))


@pytest.fixture(scope="module")
def before_dictionaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the last release that reads no response with a dictionary."""
    return extracted(BEFORE_DICTIONARIES, tmp_path_factory.mktemp("before-dictionaries"))


async def created(api: Member, **body: Any) -> Json:
    """The response to a request in the foreground."""
    async with httpx.AsyncClient(base_url=api.url, timeout=SECONDS, trust_env=False) as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


class Both:
    """Every request at both releases, each continuing a turn of the other one and followed at either."""

    def __init__(self, fleet: Fleet, names: Iterable[str]) -> None:
        """Of the requests with these names. Nothing is asked yet."""
        self._fleet, self._names = fleet, names
        self.followers: dict[tuple[str, str], Follower] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self) -> None:
        """Queue all of it."""
        long = "Say something. " + "word " * 1500
        for api, other in (self._fleet.apis, reversed(self._fleet.apis)):
            parent = await created(other, input=long, max_output_tokens=20)
            for name in self._names:
                follower = Follower(partial(self._urls, api, name), self._fleet.chance, older=True)
                self.followers[api.name, name] = follower
                asked = follower.create(previous_response_id=parent["id"], **REQUESTS[name])
                self._tasks.append(asyncio.create_task(asked))
        await self._until(lambda: all(each.id for each in self.followers.values()), "some aren't queued")

    def _urls(self, api: Member, name: str) -> list[str]:
        """Where it may be asked for: created at one API, it is followed at any."""
        known = self.followers[api.name, name].id is not None
        return [each.url for each in self._fleet.apis] if known else [api.url]

    async def progress(self) -> None:
        """Wait until each response is further on, or over."""
        wanted = {each: len(each.events) + NEWS for each in self.followers.values()}
        await self._until(
            lambda: all(each.over or len(each.events) > news for each, news in wanted.items()), "some are silent"
        )

    async def _until(self, met: Callable[[], bool], complaint: str) -> None:
        """Wait for a condition, or for a follower that fails: what it fails of is raised."""
        await until(lambda: met() or any(task.done() and task.exception() for task in self._tasks), SECONDS, complaint)
        for task in self._tasks:
            if task.done():
                task.result()

    async def over(self) -> None:
        """Wait until all have come to their end."""
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Give up what isn't over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def asked(fleet: Fleet, names: Iterable[str]) -> AsyncIterator[Both]:
    """What is under way, until the end of the block."""
    both = Both(fleet, names)
    try:
        await both.ask()
        yield both
    finally:
        await both.stop()


def without_ids(response: Json) -> Json:
    """What two responses to one request have in common, but for what they were given to say and when; and for what only
    later releases echo.
    """
    own = ("id", "created_at", "completed_at", "previous_response_id", "output", "usage")
    alike = {name: value for name, value in response.items() if name not in own}
    return alike | {"reasoning": {name: alike["reasoning"][name] for name in ("effort", "summary")}}


TALKERS = 2
"""How many processes of each release talk over one store."""

STORED = 1_500
"""How many turns they store together, many times as many as fit."""


async def test_two_releases_evict_use_and_continue_what_the_other_one_stored(
    before_shares: Path, tmp_path: Path
) -> None:
    program = ROOT / "tests" / "support" / "store" / "programs" / "talking.py"
    with server(tmp_path) as one, ExitStack() as talkers:
        url = f"redis://{one.address}"
        redis = connect(url)
        small = ConversationHistoryStore(connect(url), caps=Caps(responses=RESPONSES))
        kept = await grow(small, "one", "two", tenant="small")
        for number in range(TALKERS * 2):
            environment = os.environ | {"PYTHONPATH": str(before_shares if number % 2 else ROOT)}
            talkers.enter_context(run([sys.executable, str(program), url, "harmonium", str(number)], environment))
        await until(lambda: redis.llen("harmonium-ids"), SECONDS, wanted=lambda stored: stored >= STORED)
        talkers.close()
        assert int(await redis.hget("harmonium:{00}:usage", "responses") or 0) <= RESPONSES
        assert {fault.what for fault in (await checked(url, "harmonium"))[0]} <= OUTDATED
        assert await said(small, kept[1], "small") == ["one", "two"]
        await age(redis)
        await small.sweep()
        await small.close()
        assert {fault.what for fault in (await checked(url, "harmonium", repair=True))[0]} <= OUTDATED
        assert await complaints(redis, "harmonium") == []
        await redis.aclose()


@contextmanager
def run(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    """A process, until the end of the block; it isn't to end before."""
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


async def age(redis: Redis) -> None:
    """It is long ago that the older release wrote, and that anybody pinned a turn."""
    for family in ("pins", "runs"):
        async for key in redis.scan_iter(f"harmonium:*:{family}:*"):
            await redis.delete(key)
    for member in await redis.zrange("harmonium:{00}:leaves", 0, -1):
        await redis.zadd("harmonium:{00}:leaves", {member: 1.0})
    for member in await redis.zrange("harmonium:{00}:tombstones", 0, -1):
        await redis.zadd("harmonium:{00}:tombstones", {member: 1.0})
    await redis.delete("harmonium-ids")


@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(REQUESTS), marks=pytest.mark.full)], ids=["few", "all"])
async def test_workers_of_two_releases_take_over_from_each_other(
    older: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    settings = SETTINGS | {"demo_tokens_per_second": 25, "max_attempts": 5}
    async with running(tmp_path, seed=8, older=older, **settings) as fleet:
        for worker in fleet.workers:
            fleet.kill(worker)
        async with asked(fleet, names) as both:
            for worker in (*fleet.workers, *fleet.workers):  # each takes over from the other, and is taken over from
                fleet.launch(worker)
                await both.progress()
                assert not all(each.over for each in both.followers.values()), "nothing is left to take over"
                fleet.kill(worker)
            for worker in fleet.workers:
                fleet.launch(worker)
            await both.over()
            await check(fleet, both)


async def check(fleet: Fleet, both: Both) -> None:
    """All completed, alike at both, the store is sound but for what a repair puts right as documented, and the other
    release can continue what each made.
    """
    (first, second), settings = fleet.apis, fleet.settings
    for (api, name), follower in both.followers.items():
        response = follower.response
        assert response["status"] == "completed", (api, name, response["error"])
        if "input" in REQUESTS[name] and REQUESTS[name]["input"] == COUNT:
            assert follower.text == NUMBERS, (api, name)
        assert without_ids(response) == without_ids(both.followers[second.name, name].response)
    aftermath = Aftermath(settings)
    try:
        await until(lambda: settled(aftermath), SECONDS, "jobs are left")
        await aftermath.sweep()
        faults, _ = await checked(settings.redis_url, settings.key_prefix, settings.shards, repair=True)
        assert {fault.what for fault in faults} <= OUTDATED, faults
        await aftermath.check([str(each.id) for each in both.followers.values()])
    finally:
        await aftermath.close()
    for api, other in ((first, second), (second, first)):
        sealed = both.followers[api.name, "sealed"].response["output"]
        assert any(item.get("encrypted_content") for item in sealed)
        sent = [{name: value for name, value in item.items() if name != "status"} for item in sealed]
        hello = {"role": "user", "content": "Hello"}
        await created(other, input=[hello, *sent, hello], max_output_tokens=20)
        for name in ("counting", "compaction", "with all its fields"):
            parent = both.followers[api.name, name].id
            await created(other, input="Hello.", previous_response_id=parent, max_output_tokens=20)


async def settled(aftermath: Aftermath) -> bool:
    """Whether nothing is under way."""
    return await aftermath.left_over() == []


@asynccontextmanager
async def asking(api: Member) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API."""
    async with httpx.AsyncClient(base_url=api.url, timeout=SECONDS, trust_env=False) as http:
        yield http


async def found_by(api: Member, id: str) -> str:
    """The output of a response as an API retrieves it."""
    async with asking(api) as http:
        answer = await http.get(f"/v1/responses/{id}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["output"])


async def readiness(api: Member) -> str:
    """What an API says of its store."""
    async with asking(api) as http:
        return str((await http.get("/ready")).json()["store"])


async def packed_as(fleet: Fleet, id: str) -> int:
    """The format version of a response as it is stored."""
    client = connect(fleet.store.url)
    try:
        (key,) = [key async for key in client.scan_iter(f"*:response:{id.removeprefix('resp_')}")]
        return (await client.get(key))[0]
    finally:
        await client.aclose()


async def test_what_an_older_release_can_not_read_is_written_once_the_layout_was_raised_and_that_one_leaves(
    before_dictionaries: Path, tmp_path: Path
) -> None:
    async with running(tmp_path, seed=3, older=before_dictionaries, workers=0) as fleet:
        older, newer = fleet.apis
        both = [await created(api, input=COUNT) for api in fleet.apis]
        for api, other in ((older, newer), (newer, older)):
            response = both[fleet.apis.index(other)]
            assert await found_by(api, response["id"]) == str(response["output"])
            await created(api, input=COUNT, previous_response_id=response["id"])
        assert [await packed_as(fleet, each["id"]) for each in both] == [1, 1]

        await asyncio.to_thread(join, fleet.settings.model_copy(update={"store_layout": LAYOUT}))
        assert [await readiness(api) for api in fleet.apis] == ["mismatch", "ok"]
        latest = await created(newer, input=COUNT, previous_response_id=both[0]["id"])
        assert await packed_as(fleet, latest["id"]) == 2
        for response in (*both, latest):
            assert await found_by(newer, response["id"]) == str(response["output"])
        fleet.kill(older)
        fleet.launch(older)
        assert await older.ended() == 1
        assert f"the store has layout {LAYOUT}" in older.log
