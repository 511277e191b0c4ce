"""What becomes of jobs when processes are killed: those that work on them, and the server under load.

No job is stuck, none that was acknowledged is lost, and whoever goes on with one goes on from the last event that was
acknowledged: no event is missing in a log, and none is there twice.
"""

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

from store.errors import NotFound
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog
from store.turn import Found, Status
from tests.store.history.test_crashes import (
    FSYNC,
    KIND,
    TAIL_BYTES,
    UNSYNCED_SECONDS,
    Store,
    opened,
    talkers,
    until,
)
from tests.support.store.audit import dump
from tests.support.store.durable import Durable, durable, torn_copy
from tests.support.store.programs.killed_jobs import LIMITS, Said, carry_on, ended
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults

PROGRAM = "killed_jobs"
BATCH, AT_ONCE = 10, 4


async def check(store: Store, said: Said, *, since: float | None = None) -> None:
    """All that must be true of jobs whose workers are gone, and once others have ended them.

    What was acknowledged after `since`, if that is given, may be lost.
    """
    await until(store.is_unused, "a killed process is still connected")
    assert await faults(store.redis, store.url, store.prefix) == []
    until_then = time.time() if since is None else since
    there = {id: found for id in said.parents if (found := await look(store, id))}
    assert {id for id, at in said.submitted.items() if at < until_then} - there.keys() == set()
    for id, (status, at) in said.statuses.items():
        assert at >= until_then or (there[id].status, there[id].under_way) == (status, False)
    for id, at in said.revoked.items():
        assert at >= until_then or there[id].status is Status.CANCELLED
    jobs = Jobs(store.history, LIMITS)
    await end_all(jobs)
    for id in there:
        await check_end(store, jobs, id)
    assert await faults(store.redis, store.url, store.prefix) == []


async def look(store: Store, id: str) -> Found | None:
    try:
        return await store.history.find(TENANT, id)
    except NotFound:
        return None


async def end_all(jobs: Jobs) -> None:
    """End all that waits, or is held by somebody who is dead."""
    chance = random.Random(0)
    async with asyncio.timeout(20 * LIMITS.lease_seconds):
        while (queue := await jobs.queue(0)).running or any(queue.waiting):
            for job in (await jobs.claim(0, 20)).jobs:
                await carry_on(jobs, job, chance)
            await asyncio.sleep(LIMITS.lease_seconds / 20)


async def check_end(store: Store, jobs: Jobs, id: str) -> None:
    """A response has ended, and its log has every event once."""
    found = await jobs.history.find(TENANT, id)
    assert not found.under_way
    log = await EventLog(jobs.history).read(TENANT, id, -1, 1_000)
    spans = [tuple(map(int, each.blob.split(b"-"))) for each in log]
    assert [first for first, _ in spans] == [0, *[last + 1 for _, last in spans]][: len(spans)]
    assert [last for _, last in spans] == [each.last for each in log]
    assert (found.background == "stream") == bool(log)
    assert not log or found.response == ended(id, None, found.status, log[-1].last).response


async def kill_workers(url: str, prefix: str, kills: int) -> None:
    for batch in range(kills // BATCH):
        said = Said()
        async with opened(url, f"{prefix}-{batch}") as store:
            async with talkers(url, store.prefix, batch, AT_ONCE, BATCH, program=PROGRAM) as process:
                assert process.stdout is not None
                await said.listen(process.stdout)
                assert await process.wait() == 0
            queue = await Jobs(store.history).queue(0)
            assert queue.running > 0  # they were killed at work
            await check(store, said)


async def test_jobs_of_workers_that_are_killed_are_ended_by_others(server_url: str, prefix: str) -> None:
    await kill_workers(server_url, prefix, kills=20)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_jobs_of_a_thousand_workers_that_are_killed_are_ended_by_others(server_url: str, prefix: str) -> None:
    await kill_workers(server_url, prefix, kills=1000)


async def load_and_kill(server: Durable, prefix: str, seed: int, fsync: str) -> tuple[Said, float]:
    """Let processes work on a server until it is killed; what they were told, and when that was."""
    said, enough = Said(), random.Random(seed).randint(100, 600)
    async with opened(server.url, prefix) as store:
        await store.redis.config_set("appendfsync", fsync)
    async with talkers(server.url, prefix, seed, 3, 0, program=PROGRAM) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            said.note(line)
            if len(said.statuses) >= enough:
                break
        os.kill(server.pid, signal.SIGKILL)
        killed = time.time()
        await said.listen(process.stdout)
        assert await process.wait() == 0
    assert len(said.ended) == 3
    return said, killed


async def kill_server(kind: str, folder: Path, fsync: str, rounds: int) -> None:
    for seed in range(rounds):
        server = durable(kind, folder)
        server.start()
        said, killed = await load_and_kill(server, f"kill-{seed}", seed, fsync)
        server.stop()
        server.start()
        async with opened(server.url, f"kill-{seed}") as store:
            await check(store, said, since=None if fsync == "always" else killed - UNSYNCED_SECONDS)
        server.stop()


@FSYNC
@KIND
async def test_jobs_of_a_server_that_is_killed_are_ended_after_its_return(
    tmp_path: Path, kind: str, fsync: str
) -> None:
    await kill_server(kind, tmp_path, fsync, rounds=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
@FSYNC
@KIND
async def test_jobs_of_a_server_that_is_killed_often_are_ended_after_its_return(
    tmp_path: Path, kind: str, fsync: str
) -> None:
    await kill_server(kind, tmp_path, fsync, rounds=25)


async def tear(kind: str, folder: Path, prefix: str, cuts: int) -> None:
    chance = random.Random(cuts)
    server = durable(kind, folder / "whole")
    server.start()
    said, _ = await load_and_kill(server, prefix, seed=cuts, fsync="everysec")
    server.stop()
    for number in range(cuts):
        copy = torn_copy(folder / "whole", folder / str(number), round(TAIL_BYTES ** chance.random()))
        torn = durable(kind, copy)
        torn.start()
        async with opened(torn.url, prefix) as store:
            nodes = {key: node for key, node in (await dump(store.redis, prefix)).items() if ":node:" in key}
            newest = max(int(node[b"created"]) for node in nodes.values()) / 1e6
            await check(store, said, since=newest)
        torn.stop()


@KIND
async def test_jobs_of_a_file_without_its_end_are_as_they_were_at_some_moment(
    tmp_path: Path, kind: str, prefix: str
) -> None:
    await tear(kind, tmp_path, prefix, cuts=2)


@pytest.mark.full
@pytest.mark.timeout(1800)
@KIND
async def test_jobs_of_a_file_cut_anywhere_near_its_end_are_as_they_were_at_some_moment(
    tmp_path: Path, kind: str, prefix: str
) -> None:
    await tear(kind, tmp_path, prefix, cuts=50)
