"""The outbox: what is announced is taken until it is done, by one at a time, and never by nobody."""

import asyncio

import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.jobs.outbox import Outbox, Webhook
from store.turn import Status
from tests.support.store.sample import TENANT
from tests.support.store.servers import eventually
from tests.support.store.work import claim, finish, submit

MANY = 1000
HOLD_MS = 60_000
"""Longer than any test."""

SOON_MS = 50


class Box:
    """The outbox of a store with one shard, and what is behind it."""

    def __init__(self, history: ConversationHistoryStore, redis: Redis, prefix: str) -> None:
        self.history = history
        self.outbox = Outbox(history)
        self.redis = redis
        self.prefix = prefix

    async def put(self, *, status: Status = Status.COMPLETED, max_pending: int = MANY) -> str:
        """The id of another response that has ended."""
        jobs = Jobs(self.history, JobLimits(pending=max_pending))
        id = await submit(jobs)
        await finish(jobs, await claim(jobs), status=status, announced=True)
        return id

    async def waiting(self) -> int:
        """How many wait."""
        return (await Jobs(self.history).queue(0)).pending

    async def take(self, limit: int = MANY, hold_ms: int = HOLD_MS) -> list[Webhook]:
        return await self.outbox.take(self.outbox.shards[0], limit, hold_ms)

    async def takes(self, *ids: str, hold_ms: int = HOLD_MS) -> list[Webhook]:
        """Those that are due, as soon as they are exactly these."""
        taken: list[Webhook] = []

        async def all_of_them() -> None:
            taken.extend(await self.take(hold_ms=hold_ms))
            assert sorted(each.id for each in taken) == sorted(ids)

        await eventually(all_of_them, AssertionError)
        return taken

    async def tick(self, ms: int = 1) -> None:
        """Wait until so much time has passed for the server."""
        start = await self._now_ms()
        while await self._now_ms() <= start + ms:
            pass

    async def _now_ms(self) -> int:
        seconds, micros = await self.redis.time()
        return seconds * 1000 + micros // 1000

    async def keys(self) -> set[str]:
        """What there is of the outbox, but for the notes of calls, which expire."""
        found = {key.decode() async for key in self.redis.scan_iter(f"{self.prefix}:*:outbox*", count=1000)}
        notes = {key for key in found if ":outbox-take:" in key}
        assert all([await self.redis.pttl(key) != -1 for key in notes])
        return found - notes


@pytest.fixture
def box(unaudited: ConversationHistoryStore, redis: Redis, prefix: str) -> Box:
    return Box(unaudited, redis, prefix)


async def test_what_is_held_is_taken_by_nobody_else(box: Box) -> None:
    ids = {await box.put() for _ in range(40)}
    taken = await asyncio.gather(*(box.take(7) for _ in range(10)))
    found = [each.id for some in taken for each in some]
    assert sorted(found) == sorted(ids)


async def test_what_was_held_too_long_is_due_again_and_counts_its_tries(box: Box) -> None:
    id = await box.put()
    assert [each.tries for each in await box.take(hold_ms=SOON_MS)] == [1]
    assert [each.tries for each in await box.takes(id, hold_ms=SOON_MS)] == [2]
    assert [each.tries for each in await box.takes(id)] == [3]


async def test_what_is_done_is_gone_with_all_that_was_noted_of_it(box: Box) -> None:
    await box.put()
    (webhook,) = await box.take(hold_ms=SOON_MS)
    await box.outbox.remove(webhook)
    await box.outbox.remove(webhook)
    await box.outbox.later(webhook, 1)
    assert await box.keys() == set()
    assert await box.waiting() == 0


async def test_what_is_put_off_is_due_when_that_is_over(box: Box) -> None:
    id = await box.put()
    (webhook,) = await box.take()
    await box.outbox.later(webhook, HOLD_MS)
    assert await box.take() == []
    await box.outbox.later(webhook, 1)
    assert [each.tries for each in await box.takes(id)] == [2]


async def test_what_was_put_off_when_the_clock_was_ahead_is_due_once_that_is_right(box: Box) -> None:
    id = await box.put()
    (webhook,) = await box.takes(id)
    await box.outbox.later(webhook, 30 * 86_400_000)
    assert [each.id for each in await box.take()] == [id]
    assert await box.take() == []


async def test_whoever_was_too_slow_does_not_put_off_what_another_has_taken(box: Box) -> None:
    id = await box.put()
    (slow,) = await box.take(hold_ms=SOON_MS)
    (fast,) = await box.takes(id)
    await box.outbox.later(slow, 1)
    await box.tick(2)
    assert await box.take() == []
    await box.outbox.later(fast, 1)
    await box.takes(id)


async def test_above_the_limit_the_oldest_goes_however_long_it_is_put_off(box: Box) -> None:
    await box.put(max_pending=2)
    (oldest,) = await box.take()
    await box.outbox.later(oldest, HOLD_MS)
    newer: list[str] = []
    for _ in range(2):
        await box.tick()
        newer.append(await box.put(max_pending=2))
    assert [each.id for each in await box.take()] == newer
    assert await box.waiting() == 2
    assert not await box.redis.hexists(f"{box.outbox.shards[0].outbox}-tries", oldest.member)


@pytest.mark.usefixtures("lost_replies")
async def test_no_lost_reply_changes_anything(box: Box) -> None:
    first, second = await box.put(), await box.put()
    taken = await box.take()
    assert {(each.id, each.tries) for each in taken} == {(first, 1), (second, 1)}
    await box.outbox.later(taken[0], 1)
    await box.outbox.remove(taken[1])
    assert [each.tries for each in await box.takes(taken[0].id)] == [2]
    assert await box.waiting() == 1


async def test_what_nobody_could_read_or_date_is_taken_away(box: Box) -> None:
    shard = box.outbox.shards[0]
    id = await box.put()
    await box.redis.zadd(shard.outbox, {"nonsense": 0, f"{TENANT}/00ff/completed": 0, "": 0, "a b/00/completed": 0})
    assert [each.id for each in await box.take()] == [id]
    assert await box.redis.zcard(shard.outbox) == 1
