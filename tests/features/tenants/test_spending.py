"""What was spent: counted once, where a response ends or beside that, and told by tenant, key, model and hour."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from redis.asyncio import Redis

from store.errors import LeaseLost
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import Steer
from store.spending import HOUR_SECONDS, MARKED_MS, HourSpent, Spender, Spending, Sums
from store.turn import Expense, Status, Turn
from tests.support.store.sample import TENANT, turn
from tests.support.store.work import claim, submit, successor

SPENT = Expense("key_1", "gpt-oss-20b", 100, 40, 9, 5)
WHO = Spender(TENANT, SPENT.key, SPENT.model)
ONCE = Sums(1, 100, 40, 9, 5)
END = LogEntry(9, b"the end")
MOST_SPENDERS = 1_000


@pytest.fixture
def spending(history: ConversationHistoryStore) -> Spending:
    """What was spent in an empty store."""
    return Spending(history)


async def hour_of(redis: Redis) -> int:
    """The hour of the server."""
    return (await redis.time())[0] // HOUR_SECONDS


async def told(spending: Spending, redis: Redis) -> dict[Spender, Sums]:
    """Who spent what since the hour before this one, in which a test may have begun."""
    sums: dict[Spender, Sums] = {}
    now = await hour_of(redis)
    for shard in range(spending.shards):
        rows, behind = await spending.sums(shard, now - 1, now)
        assert behind == now + 1
        for row in rows:
            sums[row.spender] = sums.get(row.spender, Sums()).plus(row.sums)
    return sums


def spending_turn(id: str, parent: str | None = None, *, expense: Expense = SPENT, **how: Status) -> Turn:
    """A turn whose response spent something."""
    return msgspec.structs.replace(turn(id, parent, **how), expense=expense)


@pytest.mark.usefixtures("lost_replies")
async def test_what_loses_its_replies_is_counted_once(
    history: ConversationHistoryStore, jobs: Jobs, spending: Spending, redis: Redis
) -> None:
    conversations = Conversations(history)
    await history.append(TENANT, spending_turn(history.new_id()))
    await spending.count(TENANT, history.new_id(), SPENT)
    id = conversations.new_id()
    await conversations.create(TENANT, id, turn(conversations.new_turn_id(id)), b"{}")
    await conversations.hold(TENANT, id, "run", 600.0)
    (tip,) = await conversations.lineage(TENANT, id)
    await conversations.advance(TENANT, id, spending_turn(history.new_id(tip), tip), hold="run")
    await submit(jobs)
    (job,) = (await jobs.claim(0, 1)).jobs
    await jobs.finish(job.lease, spending_turn(job.lease.id), END)
    assert await told(spending, redis) == {WHO: Sums(4, 400, 160, 36, 20)}


async def test_a_job_is_counted_where_it_ends_and_by_whom(jobs: Jobs, spending: Spending, redis: Redis) -> None:
    id = await submit(jobs, steerable=True)
    job = await claim(jobs)
    assert await told(spending, redis) == {}
    said = Steer("steer_1", b"more")
    await jobs.steer(TENANT, id, said)
    ended = spending_turn(id, status=Status.INCOMPLETE)
    next_one = successor(jobs, id)
    with pytest.raises(LeaseLost):
        await jobs.succeed(msgspec.structs.replace(job.lease, token="0" * 24), ended, END, next_one, steers=[said])
    assert await told(spending, redis) == {}
    for _ in range(2):
        await jobs.succeed(job.lease, ended, END, next_one, steers=[said])
    assert await told(spending, redis) == {WHO: ONCE}
    job = await claim(jobs)
    await jobs.cancel(TENANT, next_one.turn.id)
    with pytest.raises(LeaseLost):
        await jobs.finish(job.lease, spending_turn(next_one.turn.id), END)
    assert await told(spending, redis) == {WHO: ONCE}


async def test_what_is_not_stored_is_counted_once_and_never_beside_what_is(
    history: ConversationHistoryStore, spending: Spending, redis: Redis, prefix: str
) -> None:
    history.caps = replace(history.caps, spent_seconds=7_200)
    stored, unstored = history.new_id(), history.new_id()
    await history.append(TENANT, spending_turn(stored))
    for id in (stored, unstored, unstored):
        await spending.count(TENANT, id, SPENT)
    assert await told(spending, redis) == {WHO: Sums(2, 200, 80, 18, 10)}
    (mark,) = [key async for key in redis.scan_iter(f"{prefix}:*:spent-by:*")]
    assert MARKED_MS - 60_000 < await redis.pttl(mark) <= MARKED_MS
    hours = [key async for key in redis.scan_iter(f"{prefix}:*:spent:*")]
    assert all([7_000 < await redis.ttl(key) <= 7_200 for key in hours])


async def test_an_hour_that_is_full_counts_the_rest_together(
    history: ConversationHistoryStore, spending: Spending, redis: Redis, prefix: str
) -> None:
    for hour in (now := await hour_of(redis), now + 1):
        full = {f"a/key_{number}/m": "1 2 1 3 1" for number in range(MOST_SPENDERS - 1)}
        await redis.hset(f"{prefix}:{{00}}:spent:{hour}", mapping=full)
        await redis.expire(f"{prefix}:{{00}}:spent:{hour}", 600)
    for number in range(3):
        await history.append(TENANT, spending_turn(history.new_id(), expense=Expense(f"key_{number}", "m", 5, 0, 2)))
    await history.append(TENANT, spending_turn(history.new_id(), expense=Expense("key_0", "m", 5, 0, 2)))
    found, _ = await spending.sums(0, now, now + 1)
    sums = {row.spender: row.sums for row in found if row.spender.tenant != "a"}
    assert sums == {Spender(TENANT, "key_0", "m"): Sums(2, 10, 0, 4, 0), Spender("", "", ""): Sums(2, 10, 0, 4, 0)}


async def test_many_hours_are_told_in_pieces_and_each_of_them_whole(
    spending: Spending, redis: Redis, prefix: str
) -> None:
    for hour in (100, 101, 350, 901):
        fields = {f"a/key_{number}/m/of/a folder": f"{number} 1 0 1 0 5" for number in range(400)}
        await redis.hset(f"{prefix}:{{00}}:spent:{hour}", mapping=fields)
        await redis.expire(f"{prefix}:{{00}}:spent:{hour}", 600)
    found: list[HourSpent] = []
    hour, calls = 90, 0
    while hour <= 900:
        rows, hour = await spending.sums(0, hour, 900)
        assert len(rows) < 2_000
        found += rows
        calls += 1
    assert Counter(row.hour for row in found) == {100: 400, 101: 400, 350: 400}
    assert found[0].spender.model == "m/of/a folder"
    assert sum(row.sums.requests for row in found) == 3 * sum(range(400))
    assert calls < 10
