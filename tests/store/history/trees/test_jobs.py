"""What a tenant has under way: what waits and what runs, in all shards, and nothing of others."""

from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.history.tree_turns import under_way
from store.jobs.jobs import Jobs
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow
from tests.support.store.work import claim, do_all, submit


async def ids(history: ConversationHistoryStore, most: int = 10, tenant: str = TENANT) -> list[tuple[str, str]]:
    found, _ = await under_way(history, tenant, most)
    return [(each.id, each.status) for each in found]


async def test_what_waits_and_what_runs_is_told_until_it_has_ended(
    history: ConversationHistoryStore, jobs: Jobs, redis: Redis, prefix: str
) -> None:
    (parent,) = await grow(history, "one")
    first = await submit(jobs)
    second = await submit(jobs, parent=parent)
    running = (await claim(jobs)).lease.id
    before = await dump(redis, prefix)
    found, whole = await under_way(history, TENANT, 10)
    assert await dump(redis, prefix) == before
    assert ({each.id: each.status for each in found}, whole) == (
        {each: "in_progress" if each == running else "queued" for each in (first, second)},
        True,
    )
    assert {each.id: each.parent for each in found} == {first: None, second: parent.removeprefix("resp_")}
    assert [each.created for each in found] == sorted((each.created for each in found), reverse=True)
    await do_all(jobs)
    assert running in [id for id, _ in await ids(history)]


async def test_others_have_nothing_of_it(history: ConversationHistoryStore, jobs: Jobs) -> None:
    mine = await submit(jobs)
    theirs = await submit(jobs, tenant="other")
    assert [id for id, _ in await ids(history)] == [mine]
    assert [id for id, _ in await ids(history, tenant="other")] == [theirs]
    assert await ids(history, tenant="nobody") == []


async def test_no_more_is_told_than_is_wanted(history: ConversationHistoryStore, jobs: Jobs) -> None:
    made = {await submit(jobs) for _ in range(4)}
    for most in (1, 3, 4, 5):
        found, whole = await under_way(history, TENANT, most)
        assert (len(found), whole) == (min(most, 4), most >= 4)
        assert {each.id for each in found} <= made
