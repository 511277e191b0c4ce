"""Releases beside each other where a store gets an archive, and where it has one: what one stored or archived the other
continues, and a release that knows of no archive doesn't touch what is noted for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.layout import ARCHIVE_LAYOUT
from store.redis.connection import connect
from tests.support.chaos.fleet import Fleet, Member, running
from tests.support.chaos.releases import extracted
from tests.support.chaos.storm import SETTINGS
from tests.support.oracles.event_grammar import Json
from tests.support.service.process import MODEL
from tests.support.waiting import until

BEFORE_ARCHIVES = "864b324"
"""The last commit that knows no setting of an archive."""

WITH_AN_ARCHIVE = "577e564"
"""A commit whose services have an archive, with layout 3 and the first format of its values."""

FEW = 8
"""How many responses memory has room for."""

COUNT = "Count to 4."
SECONDS = 60.0

KEPT = SETTINGS | {"max_responses": FEW, "demo_tokens_per_second": 500, "sweep_seconds": 1}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def before_archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages of the release before archives."""
    return extracted(BEFORE_ARCHIVES, tmp_path_factory.mktemp("before-archives"))


@pytest.fixture(scope="module")
def with_an_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of one that has them."""
    return extracted(WITH_AN_ARCHIVE, tmp_path_factory.mktemp("with-an-archive"))


@asynccontextmanager
async def asking(api: Member) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API."""
    async with httpx.AsyncClient(base_url=api.url, timeout=SECONDS, trust_env=False) as http:
        yield http


async def say(api: Member, parent: Json | None = None) -> Json:
    """Another response of an API, once it has room for it."""
    body = {"model": MODEL, "input": COUNT} | ({} if parent is None else {"previous_response_id": parent["id"]})
    async with asking(api) as http:

        async def asked() -> httpx.Response:
            return await http.post("/v1/responses", json=body)

        answer = await until(asked, SECONDS, wanted=lambda found: found.status_code != 503)
    assert answer.status_code == 200, answer.text
    made: Json = answer.json()
    return made


async def check_told(api: Member, *responses: Json) -> None:
    """An API tells of responses as they were made."""
    async with asking(api) as http:
        for response in responses:
            answer = await http.get(f"/v1/responses/{response['id']}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["output"] == response["output"]


async def status_of(api: Member, id: str) -> int:
    """What an API answers for a response."""
    async with asking(api) as http:
        return (await http.get(f"/v1/responses/{id}")).status_code


async def push_out(fleet: Fleet, api: Member, *responses: Json) -> None:
    """Have all of some responses leave memory, as others are made."""
    redis = connect(fleet.store.url)
    prefix = f"{fleet.settings.key_prefix}:{{00}}:t:default:node:"
    try:
        for response in responses:
            while await redis.exists(prefix + response["id"].partition("_")[2]):
                await say(api)
    finally:
        await redis.aclose()


def archiving(fleet: Fleet, folder: Path, name: str, **more: Any) -> Member:
    """An API of this release that has an archive."""
    given = {"redis_url": fleet.store.url, **KEPT, "archive_url": f"sqlite://{folder}/archive", "change_limits": True}
    return Member(name, folder, ["serve", "--no-worker"], "port", **given, archive_after_seconds=0.1, **more)


async def test_a_store_gets_an_archive_once_no_older_release_uses_it_and_then_none_can(
    before_archives: Path, tmp_path: Path
) -> None:
    async with running(tmp_path, seed=5, older=before_archives, workers=0, **KEPT) as fleet:
        older, without = fleet.apis
        first, second = await say(older), await say(without)
        both = [first, second, await say(older, second), await say(without, first)]
        too_early = archiving(fleet, tmp_path, "too-early")
        too_early.launch()
        assert await too_early.ended() == 1
        assert f"needs layout {ARCHIVE_LAYOUT}, and the store has layout 1" in too_early.log
        await check_told(older, *both)

        raising = archiving(fleet, tmp_path, "raising", store_layout=ARCHIVE_LAYOUT)
        try:
            raising.launch()
            await raising.ready()
            assert await readiness(older) == "mismatch"  # it should have left before
            fleet.kill(older)
            fleet.launch(older)
            await until(lambda: is_told_apart(without), SECONDS, "it doesn't hear of the archive")
            await push_out(fleet, raising, *both)
            await check_told(raising, *both)
            await check_told(raising, await say(raising, both[2]), await say(raising, both[3]))
            assert await has_archive(fleet), "who has none has taken the notes away"
            assert await older.ended() == 1
            assert f"the store has layout {ARCHIVE_LAYOUT}" in older.log
        finally:
            raising.kill()


async def readiness(api: Member) -> str:
    """What an API says of its store."""
    async with asking(api) as http:
        return str((await http.get("/ready")).json()["store"])


async def has_archive(fleet: Fleet) -> bool:
    """Whether the store notes what changes."""
    redis = connect(fleet.store.url)
    try:
        return bool(await redis.exists(f"{fleet.settings.key_prefix}:{{00}}:archive"))
    finally:
        await redis.aclose()


async def is_told_apart(api: Member) -> bool:
    """Whether an API has said that others use the store with other settings."""
    return "the store is not to be used with these settings" in api.log


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.full)])
async def test_two_releases_archive_and_continue_what_the_other_one_archived(
    with_an_archive: Path, tmp_path: Path, rounds: int
) -> None:
    archive = {
        "archive_url": f"sqlite://{tmp_path}/archive",
        "archive_after_seconds": 0.1,
        "store_layout": ARCHIVE_LAYOUT,
    }
    async with running(tmp_path, seed=6, older=with_an_archive, workers=0, **KEPT, **archive) as fleet:
        chains = [[await say(api)] for api in fleet.apis]
        gone: list[str] = []
        for number in range(rounds):
            for api, other in ((*fleet.apis,), (*reversed(fleet.apis),)):
                fleet.kill(other)  # who is left archives, and brings back what the other one archived
                await push_out(fleet, api, *(chain[-1] for chain in chains))
                for chain in chains:
                    await check_told(api, *chain)
                    chain.append(await say(api, chain[-1]))
                fork = await say(api, chains[number % 2][0])
                async with asking(api) as http:
                    assert (await http.delete(f"/v1/responses/{fork['id']}")).status_code == 200
                gone.append(fork["id"])
                fleet.launch(other)
                await other.ready()
        await push_out(fleet, fleet.apis[1], *(chain[-1] for chain in chains))
        for api in fleet.apis:
            for chain in chains:
                await check_told(api, *chain)
            assert [await status_of(api, id) for id in gone] == [404] * len(gone)
