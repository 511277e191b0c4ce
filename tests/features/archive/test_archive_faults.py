"""Archives with faults under the whole service: a value that can't be read costs its own conversation and no other, and
a full disk takes nothing away.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient
from openai import APIStatusError, AsyncOpenAI
from redis.asyncio import Redis

from service.commands.serve import join
from service.process import Settings
from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup.archiving.parts import MAGIC, VERSION, key_of
from store.keys import digits_of
from tests.features.archive.test_archive import FEW, prefix, redis
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.store.disks import fill, small_disk
from tests.support.waiting import until

__all__ = ["prefix", "redis"]


DISK_MIB = 32
"""Room for the logs of three files (WAL_PAGES), which are what fills a disk of 4 MiB."""

TENANT = "default"
SECONDS = 30.0

POISON = b"hA\x01\0 poison"
NEWER = MAGIC + bytes([VERSION + 1]) + b"what only a later release can read"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", DISK_MIB)


def little(redis_url: str, prefix: str, folder: Path) -> Settings:
    """The settings of a service that archives at once and has little memory."""
    return Settings.model_validate(
        {
            "redis_url": redis_url,
            "redis_prefix": prefix,
            "archive_url": f"sqlite://{folder}",
            "archive_after_seconds": 0,
            "max_responses": FEW,
            "max_trees": 0,
            "embedded_worker": True,
            "store_timeout_seconds": 10.0,
            "lease_seconds": 30.0,
        }
    )


@asynccontextmanager
async def archiving(redis_url: str, prefix: str, folder: Path) -> AsyncIterator[AsyncOpenAI]:
    """A client of such a service."""
    settings = little(redis_url, prefix, folder)
    await asyncio.to_thread(join, settings)
    async with serving(settings) as inside, inside.client() as client:
        yield client


async def say(client: AsyncOpenAI, after: str | None = None) -> str:
    return (await client.responses.create(model=MODEL, input="Count to 2.", previous_response_id=after)).id


class Memory:
    """What is in memory."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis, self._shard = redis, f"{prefix}:{{00}}"

    async def has(self, id: str) -> bool:
        return bool(await self._redis.exists(f"{self._shard}:t:{TENANT}:node:{digits_of(id)}"))

    async def waiting(self) -> list[str]:
        """The roots of the trees that the archive lacks something of."""
        found = await self._redis.zrange(f"{self._shard}:unarchived", 0, -1)
        return [each.decode().partition("/")[2] for each in found]

    async def all_archived(self, *, but: str | None = None) -> None:
        """Return once the archive lacks nothing, or something of one tree alone."""
        left = [] if but is None else [digits_of(but)]
        await until(self.waiting, SECONDS, wanted=lambda waiting: waiting == left)

    async def push_out(self, client: AsyncOpenAI, id: str) -> None:
        while await self.has(id):
            await say(client)
            await self.all_archived()


async def refused(attempt: Awaitable[object]) -> tuple[int, str | None]:
    """The status and the code of a refusal."""
    with pytest.raises(APIStatusError) as error:
        await attempt
    return error.value.status_code, error.value.code


async def swap(archive: Archive, root: str, value: bytes) -> bytes:
    """Put something else in the place of a tree's value; what was there."""
    key = key_of(TENANT, digits_of(root))
    found = await until(lambda: archive.get(key))  # the first turns of a process may be archived after it has begun to
    assert await archive.put(key, value, only_if=found.etag) is not None
    return found.value


@pytest.mark.parametrize(
    ("value", "code"), [(POISON, "archive_damaged"), (NEWER, None)], ids=["poisoned", "of a later release"]
)
async def test_a_value_that_can_not_be_read_costs_its_own_conversation_and_no_other(
    redis_url: str, redis: Redis, prefix: str, tmp_path: Path, value: bytes, code: str | None
) -> None:
    memory, archive = Memory(redis, prefix), open_archive(f"sqlite://{tmp_path}", tmp_path)
    async with archiving(redis_url, prefix, tmp_path) as client:
        first, other = await say(client), await say(client)
        second = await say(client, first)
        await memory.push_out(client, second)
        await memory.push_out(client, other)
        sound = await swap(archive, first, value)
        reads: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: client.responses.retrieve(second),
            lambda: client.responses.input_items.list(second)._get_page(),
            lambda: say(client, second),
            lambda: client.responses.delete(second),
        )
        for read in reads:
            status, told = await refused(read())
            assert (status, told) == (500, code or "server_error")
        assert (await client.responses.retrieve(other)).output_text == "1\n2"
        await say(client, other)
        await memory.all_archived()
        assert await swap(archive, first, sound) == value  # nobody has replaced it
        assert (await client.responses.retrieve(second)).output_text == "1\n2"
        await say(client, second)
    await archive.close()


async def _ready(client: AsyncOpenAI) -> dict[str, Any]:
    async with AsyncClient(trust_env=False) as http:
        return (await http.get(str(client.base_url.copy_with(path="/ready")))).json()


async def test_a_disk_that_is_full_takes_no_more_and_loses_nothing(
    redis_url: str, redis: Redis, prefix: str, disk: Path
) -> None:
    memory = Memory(redis, prefix)
    async with archiving(redis_url, prefix, disk / "archive") as client:
        away = await say(client)
        await memory.push_out(client, away)
        filler = fill(disk, but=0)
        said: list[str] = []

        async def full() -> tuple[int, str | None] | None:
            try:
                said.append(await say(client))
            except APIStatusError as error:
                return error.status_code, error.code
            return None

        assert await until(full, SECONDS) == (507, "archive_full")
        ready = await _ready(client)
        assert (ready["status"], ready["archive"]["reason"]) == ("ok", "archive_full")
        for id in (away, *said):
            assert (await client.responses.retrieve(id)).output_text == "1\n2"
        filler.unlink()
        await memory.all_archived()
        await until(lambda: _ready(client), SECONDS, wanted=lambda said: "reason" not in said["archive"])
        for _ in range(FEW):
            await say(client)
            await memory.all_archived()
        for id in (away, *said):
            assert (await client.responses.retrieve(id)).output_text == "1\n2"
            await say(client, id)
            await memory.all_archived()
