"""The queue: which job starts next, of all priorities and tenants; and that nobody waits for more than his turn."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from redis.asyncio import Redis

from store.jobs.jobs import Jobs
from store.jobs.model import LEVELS, MARGIN_SECONDS, WINDOWS, Priority
from store.listening import Listening
from store.redis.connection import connect
from tests.support.store.sample import TENANT
from tests.support.store.work import age, claim, claimed, finish, submit

DEADLINE_SECONDS = 10.0


@pytest.mark.parametrize("priority", WINDOWS)
async def test_a_job_that_has_hours_is_an_ordinary_one_before_they_are_over(jobs: Jobs, priority: Priority) -> None:
    late = await submit(jobs, "late", priority=priority)
    early = await submit(jobs, "early", priority=priority)
    margin, window = MARGIN_SECONDS, WINDOWS[priority]
    await age(jobs, late, window - margin + 1)
    await age(jobs, early, window - margin - 60)
    await submit(jobs, "flex", priority=Priority.FLEX)
    await submit(jobs, "urgent", priority=Priority.PRIORITY)
    found = (await jobs.claim(0, 10)).jobs
    assert [(await jobs.spec(job.lease)).decode() for job in found] == ["urgent", "late", "flex", "early"]
    assert [job.priority for job in found] == [Priority.PRIORITY, Priority.DEFAULT, Priority.FLEX, priority]
    assert (found[1].spare_seconds, 0 < (found[3].spare_seconds or 0) <= 60) == (None, True)
    assert (await jobs.queue(0)).waiting == (0,) * LEVELS


async def test_so_many_groups_are_known_and_the_oldest_is_forgotten(jobs: Jobs, redis: Redis, prefix: str) -> None:
    groups = f"{prefix}:{{00}}:groups:{TENANT}"
    await redis.zadd(groups, {f"g{number}": number for number in range(1000)})
    await submit(jobs, group="new")
    assert (await redis.zcard(groups), await redis.zscore(groups, "g0")) == (1000, None)


async def test_what_gave_way_and_has_no_hours_any_more_is_ordinary_and_did_not_run_meanwhile(jobs: Jobs) -> None:
    id = await submit(jobs, priority=Priority.WITHIN_2H)
    await jobs.hand_back((await claim(jobs)).lease, failed=False, gives_way=True)
    assert (await jobs.queue(0)).waiting[Priority.WITHIN_2H] == 1
    await age(jobs, id, 2 * 3600)
    assert (await jobs.claim(0, 0)).first == Priority.DEFAULT
    job = await claim(jobs)
    assert (job.priority, job.run_seconds < 60, job.epoch) == (Priority.DEFAULT, True, 2)
    await finish(jobs, job)


USUAL = (Priority.DEFAULT, Priority.FLEX)


@pytest.mark.parametrize("priorities", [USUAL, tuple(WINDOWS)], ids=["usual", "hours"])
@pytest.mark.parametrize("seed", range(5))
async def test_between_two_starts_of_a_tenant_every_other_that_waits_has_one(
    jobs: Jobs, seed: int, priorities: tuple[Priority, ...]
) -> None:
    """Whatever its jobs say of themselves, and whether they had begun."""
    chance, waiting = random.Random(seed), Counter[str]()
    passed: dict[str, Counter[str]] = {}  # by tenant that waits, what has started since it began to, or since its last
    for _ in range(150):
        tenant = chance.choice("abcdef")
        if chance.random() < 0.55:
            said: dict[str, Any] = {"group": chance.choice(["", "a"]), "hurries": chance.random() < 0.3}
            await submit(jobs, tenant, tenant=tenant, priority=chance.choice(priorities), **said)
            waiting[tenant] += 1
            passed.setdefault(tenant, Counter())
        elif waiting.total():
            job = await claim(jobs)
            started = job.lease.tenant
            if priorities == USUAL and chance.random() < 0.3:
                await jobs.hand_back(job.lease, failed=False, gives_way=chance.random() < 0.5)
                passed.setdefault(started, Counter())
            else:
                waiting[started] -= 1
            passed = {each: Counter() if each == started else seen for each, seen in passed.items() if waiting[each]}
            for each in passed.keys() - {started}:
                passed[each][started] += 1
                assert passed[each][started] == 1, f"{started} started twice while {each} waited"


async def test_a_tenant_s_own_jobs_start_by_their_priorities_and_who_hurries_is_before_the_others(jobs: Jobs) -> None:
    for name, priority, hurries in (
        ("flex", Priority.FLEX, False),
        ("default", Priority.DEFAULT, False),
        ("grouped", Priority.DEFAULT, False),
        ("flex that hurries", Priority.FLEX, True),
        ("first that hurries", Priority.DEFAULT, True),
        ("next that hurries", Priority.DEFAULT, True),
    ):
        group = "a" if name == "grouped" else ""
        await submit(jobs, name, priority=priority, group=group, hurries=hurries)
    names = await claimed(jobs, 9)
    assert names == ["first that hurries", "next that hurries", "default", "grouped", "flex that hurries", "flex"]


async def test_what_an_operator_lets_go_first_does_so_among_all_tenants_also_once_it_had_begun(jobs: Jobs) -> None:
    await submit(jobs, "begun", tenant="initech")
    await jobs.hand_back((await claim(jobs)).lease, failed=False)
    await submit(jobs, "older", tenant="acme", priority=Priority.PRIORITY)
    await jobs.hand_back((await claim(jobs)).lease, failed=False)
    await submit(jobs, "newer", tenant="acme", priority=Priority.PRIORITY)
    await submit(jobs, "plain", tenant="globex", hurries=True)
    names = await claimed(jobs, 9)
    assert (names[:2], sorted(names[2:])) == (["older", "newer"], ["begun", "plain"])


async def test_a_claim_up_to_a_level_takes_others_whose_turn_it_is_before_that(jobs: Jobs) -> None:
    await submit(jobs, "flex", tenant="globex", priority=Priority.FLEX)
    assert (await jobs.claim(0, 9, Priority.DEFAULT)).jobs == []
    for name in ("first", "next"):
        await submit(jobs, name, tenant="acme")
    found = (await jobs.claim(0, 9, Priority.DEFAULT)).jobs
    assert [(await jobs.spec(job.lease)).decode() for job in found] == ["first", "flex", "next"]


async def test_a_place_that_is_of_no_job_keeps_nobody_from_working(jobs: Jobs, redis: Redis, prefix: str) -> None:
    nobody = "0" * 48
    await redis.zadd(f"{prefix}:{{00}}:line:1:{TENANT}", {nobody: 0})
    await redis.zadd(f"{prefix}:{{00}}:queued:1", {f"{TENANT}/{nobody}": 0})
    await redis.zadd(f"{prefix}:{{00}}:turn:1", {TENANT: 0})
    await redis.zadd(f"{prefix}:{{00}}:leases", {f"{TENANT}/{nobody}": 0})
    await submit(jobs)
    await finish(jobs, await claim(jobs))


async def test_workers_are_told_that_a_job_waits_or_was_cancelled(jobs: Jobs, server_url: str) -> None:
    listening, heard = Listening(connect(server_url)), list[bytes]()
    async with listening.channel(jobs.control(0)) as control, asyncio.timeout(DEADLINE_SECONDS):
        id = await submit(jobs)
        await jobs.cancel(TENANT, id)
        while len(heard) < 2:
            heard += await control.messages(DEADLINE_SECONDS) or []
    assert heard == [b"work", f"cancelled {TENANT}/{id.removeprefix('resp_')}".encode()]
    await listening.close()
