"""What is left when processes are killed: clients in the middle of an append, and the server under load.

What was acknowledged is there, what was not is there whole or not at all, and nothing else is left for ever: pins run
out, and a turn whose deletion was cut short goes when it is deleted again.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support import ROOT, waiting
from tests.support.store.audit import dump
from tests.support.store.durable import Durable, durable, torn_copy
from tests.support.store.programs.killed import PIN_SECONDS, Told
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults
from tests.support.store.witness import objections, witness

DEADLINE_SECONDS = 30.0
POLL_SECONDS = 0.01
BATCH, AT_ONCE = 10, 4
UNSYNCED_SECONDS = 2.0
"""What a server may lose with appendfsync everysec: it begins an fsync each second, and while one is under way it
holds back what it would write for up to two."""

TAIL_BYTES = 60_000
"""The most that is cut from a file: more than what it wrote last, and had not acknowledged when it was killed."""


@dataclass
class Store:
    """A store whose users were killed, and what is behind it."""

    history: ConversationHistoryStore
    redis: Redis
    url: str
    prefix: str

    async def known(self, id: str) -> bool:
        """Whether a turn is there; nothing is touched."""
        try:
            await self.history.lineage(TENANT, id)
        except NotFound:
            return False
        return True

    async def is_unused(self) -> bool:
        """Whether nobody but this process is connected."""
        return all(client["name"] != self.prefix for client in await self.redis.client_list())

    async def keys(self, family: str) -> list[bytes]:
        """The keys of a family."""
        return [key async for key in self.redis.scan_iter(f"{self.prefix}:*:{family}:*", count=1000)]


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Store]:
    redis = connect(url)
    assert isinstance(redis, Redis)
    history = ConversationHistoryStore(connect(url), prefix=prefix)
    try:
        yield Store(history, redis, url, prefix)
    finally:
        await history.close()
        await redis.aclose()


@asynccontextmanager
async def talkers(
    url: str, prefix: str, *numbers: int, program: str = "killed"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program of forked.py, on connections that have the prefix for a name."""
    command = [sys.executable, "-m", f"tests.support.store.programs.{program}", f"{url}?client_name={prefix}", prefix]
    process = await asyncio.create_subprocess_exec(
        *command, *map(str, numbers), cwd=ROOT, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def until(condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    await waiting.until(condition, DEADLINE_SECONDS, otherwise)


async def check(store: Store, told: Told, *, since: float | None = None) -> set[str]:
    """All that must be true of a store once nobody uses it; the acknowledged turns that it lacks.

    It may lack what was done after `since`, if that is given: deleted turns may be back, but no older one is gone.
    """
    await until(store.is_unused, "a killed process is still connected")
    times = [await store.redis.pttl(key) for key in await store.keys("pins")]
    assert [time for time in times if time != -2 and not 0 <= time <= PIN_SECONDS * 1000] == []
    going, gone = told.among(("forgetting", "abandoning")), told.among(("forgot", "abandoned"))
    there = {id for id in told.parents if await store.known(id)}
    lacking = told.appended.keys() - going - there
    assert {id for id in lacking if since is None or told.appended[id] < since} == set()
    assert since is not None or there & gone == set()
    for id in there:
        assert objections(TENANT, await store.history.chain(TENANT, id)) == []
        assert await store.history.get(TENANT, id) == witness(TENANT, id, told.parents[id]).response
    await until(lambda: _unpinned(store), "pins are left for ever")
    await store.history.sweep()
    assert await faults(store.redis, store.url, store.prefix) == []
    return lacking


async def _unpinned(store: Store) -> bool:
    return await store.keys("pins") == []


async def kill_clients(url: str, prefix: str, kills: int) -> None:
    for batch in range(kills // BATCH):
        told = Told()
        async with opened(url, f"{prefix}-{batch}") as store:
            async with talkers(url, store.prefix, batch, AT_ONCE, BATCH) as process:
                assert process.stdout is not None
                await told.listen(process.stdout)
                assert await process.wait() == 0
            assert len(told.parents) > len(told.appended) > BATCH  # they were killed at work
            await check(store, told)
            for id in told.parents:
                with suppress(NotFound):
                    await store.history.forget_tree(TENANT, id)
            assert [key for key in await dump(store.redis, store.prefix) if ":t:" in key] == []


async def test_clients_that_are_killed_at_work_leave_whole_turns_and_nothing_else(server_url: str, prefix: str) -> None:
    await kill_clients(server_url, prefix, kills=20)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_thousand_clients_that_are_killed_leave_whole_turns_and_nothing_else(
    server_url: str, prefix: str
) -> None:
    await kill_clients(server_url, prefix, kills=1000)


async def load_and_kill(server: Durable, prefix: str, seed: int, fsync: str) -> tuple[Told, float]:
    """Let processes work on a server until it is killed; what they were told, and when that was."""
    told, enough = Told(), random.Random(seed).randint(100, 600)
    async with opened(server.url, prefix) as store:
        await store.redis.config_set("appendfsync", fsync)
    async with talkers(server.url, prefix, seed, 3, 0) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            told.note(line)
            if len(told.appended) >= enough:
                break
        os.kill(server.pid, signal.SIGKILL)
        killed = time.time()
        await told.listen(process.stdout)
        assert await process.wait() == 0
    assert len(told.ended) == 3
    assert min(told.ended) > killed - 1, "the server failed before it was killed"
    return told, killed


async def kill_server(kind: str, folder: Path, fsync: str, rounds: int) -> None:
    for seed in range(rounds):
        server = durable(kind, folder)
        server.start()
        told, killed = await load_and_kill(server, f"kill-{seed}", seed, fsync)
        server.stop()
        server.start()
        async with opened(server.url, f"kill-{seed}") as store:
            since = None if fsync == "always" else killed - UNSYNCED_SECONDS
            await check(store, told, since=since)
        server.stop()


FSYNC = pytest.mark.parametrize("fsync", ["always", "everysec"])
KIND = pytest.mark.parametrize("kind", ["valkey", "redis"])


@FSYNC
@KIND
async def test_a_server_that_is_killed_keeps_what_it_acknowledged(tmp_path: Path, kind: str, fsync: str) -> None:
    """All of it with `always`, all but the newest two seconds with `everysec`.

    A SIGKILL leaves what the server has written in the kernel's page cache, be it synced or not. So it can show that
    the server writes before it acknowledges, and that it finds its way through what it wrote. What a power cut takes
    it can't show: that is the next test's.
    """
    await kill_server(kind, tmp_path, fsync, rounds=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
@FSYNC
@KIND
async def test_a_server_that_is_killed_often_keeps_what_it_acknowledged(tmp_path: Path, kind: str, fsync: str) -> None:
    await kill_server(kind, tmp_path, fsync, rounds=25)


async def tear(kind: str, folder: Path, prefix: str, cuts: int) -> None:
    chance = random.Random(cuts)
    server = durable(kind, folder / "whole")
    server.start()
    told, _ = await load_and_kill(server, prefix, seed=cuts, fsync="everysec")
    server.stop()
    lacking: set[str] = set()
    for number in range(cuts):
        lost_bytes = round(TAIL_BYTES ** chance.random()) if number else TAIL_BYTES
        copy = torn_copy(folder / "whole", folder / str(number), lost_bytes)
        torn = durable(kind, copy)
        torn.start()
        async with opened(torn.url, prefix) as store:
            nodes = {key: node for key, node in (await dump(store.redis, prefix)).items() if ":node:" in key}
            newest = max(int(node[b"created"]) for node in nodes.values()) / 1e6
            lacking |= await check(store, told, since=newest)
        torn.stop()
    assert lacking, "the cuts took nothing away"


@KIND
async def test_a_file_without_its_end_lacks_only_the_newest_turns(tmp_path: Path, kind: str, prefix: str) -> None:
    """A power cut takes the end of the append-only file, in the middle of a command or of a script's commands.

    The server starts all the same (aof-load-truncated), takes a script's commands together or not at all, and what it
    lacks is newer than all that it has.
    """
    await tear(kind, tmp_path, prefix, cuts=3)


@pytest.mark.full
@pytest.mark.timeout(1800)
@KIND
async def test_a_file_cut_anywhere_near_its_end_lacks_only_the_newest_turns(
    tmp_path: Path, kind: str, prefix: str
) -> None:
    await tear(kind, tmp_path, prefix, cuts=100)
