"""A storm: many processes and tasks on the same few trees, under caps that all bite.

Whatever happens, a chain that is read has no hole, no turn of a sibling or another tenant, and is in order; only
documented errors are raised; and no cap is passed in any shard at any look, or after it.
"""

import asyncio
import sys
from collections import Counter
from contextlib import suppress

import msgspec
import pytest
from redis.asyncio import Redis

from store.fsck.faults import Fault
from store.history.history import ConversationHistoryStore
from tests.support import ROOT
from tests.support.lengths import lengths
from tests.support.store.audit import LEAF_BYTES
from tests.support.store.counted import usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.programs.stormer import CAPS, PIN_SECONDS, SHARDS, SHREDDER, STEADY, Report
from tests.support.store.verdict import checked, faults

POLL_SECONDS = 0.02
MARGIN = {"responses": 1, "trees": 1, "bytes": 25_000}
"""How far below a cap a shard is where another turn may not fit."""

GRACE_SECONDS = 20.0
"""What the processes may need to start, and to end what they are at."""


async def storm(url: str, prefix: str, processes: int, tasks: int, seconds: int) -> Report:
    """Let processes storm; all that they saw, together."""
    program = [sys.executable, "-m", "tests.support.store.programs.stormer"]
    started = [
        await asyncio.create_subprocess_exec(
            *(*program, url, prefix, *map(str, (seed, tasks, seconds))), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        for seed in range(processes)
    ]
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            printed = [output for output, _ in await asyncio.gather(*(each.communicate() for each in started))]
    finally:
        for each in started:
            with suppress(ProcessLookupError):
                each.kill()
            await each.wait()
    assert [each.returncode for each in started] == [0] * processes
    did, refused, wrong = Counter[str](), Counter[str](), list[str]()
    for report in (msgspec.json.decode(output, type=Report) for output in printed):
        did.update(report.did)
        refused.update(report.refused)
        wrong += report.wrong
    return Report(did, refused, wrong)


async def look(redis: Redis, prefix: str, reached: Counter[str]) -> None:
    """Count which shards have reached which caps, and which have passed them."""
    for shard in range(SHARDS):
        for name, count in (await stored(redis, f"{prefix}:{{{shard:02x}}}")).items():
            cap = getattr(CAPS, name)
            reached[f"{name} passed"] += count > cap
            reached[name] += count > cap - MARGIN[name]


async def watch(redis: Redis, prefix: str, reached: Counter[str], over: asyncio.Event) -> None:
    while not over.is_set():
        await look(redis, prefix, reached)
        await asyncio.sleep(POLL_SECONDS)
    await look(redis, prefix, reached)


async def doubt(url: str, prefix: str, over: asyncio.Event) -> list[Fault]:
    """What fsck finds while the storm lasts."""
    found: list[Fault] = []
    while not over.is_set():
        found += (await checked(url, prefix, SHARDS)).faults
    return found


async def stored(redis: Redis, shard: str) -> dict[str, int]:
    async with redis.pipeline(transaction=True) as at_once:
        at_once.hmget(f"{shard}:usage", ["responses", "trees", "bytes"])
        at_once.zcard(f"{shard}:leaves")
        counted, leaves = await at_once.execute()
    responses, trees, held = (int(each or 0) for each in counted)
    return {"responses": responses, "trees": trees, "bytes": held + leaves * LEAF_BYTES}


async def finish_deleting(redis: Redis, prefix: str, store: ConversationHistoryStore) -> None:
    """Wait until the last pin of a run that died has run out, and sweep."""
    async with asyncio.timeout(PIN_SECONDS + GRACE_SECONDS):
        while [key async for key in redis.scan_iter(f"{prefix}:*:pins:*")]:  # noqa: ASYNC110 (expiry wakes nobody)
            await asyncio.sleep(POLL_SECONDS)
    await store.sweep()


HAPPENED = ("read", "read back", "forked", "continued", "died", "unpinned", "expired", "erased", "forgot a tree")
REFUSALS = {"NotFound", "ParentNotFound", "ChainTooLong"}
"""All but that a store is full, which needs luck: test_caps.py has it."""

MOST_STORMS = 6
"""A machine that is busy with something else may need some until all has happened."""


def is_whole(report: Report) -> bool:
    """Whether all has happened that is to."""
    return all(report.did[each] for each in (*HAPPENED, f"forgot {SHREDDER}")) and report.refused.keys() >= REFUSALS


@pytest.mark.parametrize(("processes", "tasks", "seconds"), lengths((4, 16, 5), (8, 64, 60), seconds=600))
async def test_nothing_is_mixed_up_lost_or_passed_in_a_storm(
    open_store: OpenStore, server_url: str, redis: Redis, prefix: str, processes: int, tasks: int, seconds: int
) -> None:
    reached, over, seen = Counter[str](), asyncio.Event(), Report(Counter(), Counter(), [])
    async with asyncio.TaskGroup() as group:
        group.create_task(watch(redis, prefix, reached, over))
        doubts = group.create_task(doubt(server_url, prefix, over))
        for _ in range(MOST_STORMS):
            report = await storm(server_url, prefix, processes, tasks, seconds)
            seen = Report(seen.did + report.did, seen.refused + report.refused, seen.wrong + report.wrong)
            if is_whole(seen):
                break
        over.set()
    print(seen, reached)
    assert (seen.wrong, doubts.result()) == ([], [])
    assert {name for name in reached if reached[name]} == {"responses", "trees", "bytes"}  # reached, and none passed
    assert is_whole(seen)
    assert seen.refused.keys() - {"StoreFull"} == REFUSALS
    store = open_store(shards=SHARDS)
    evicted = seen.did[f"appended {STEADY}"] - seen.did[f"forgot {STEADY}"] - (await usage(store, STEADY)).responses
    await finish_deleting(redis, prefix, store)
    assert evicted > SHARDS * CAPS.responses
    assert await faults(redis, server_url, prefix, shards=SHARDS) == []
