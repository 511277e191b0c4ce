"""Limits on a real Redis: all of them or none, settled once, and given back by time."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.limits import MOST_SETTLED, Check, Limits, Window
from store.spent import Over, Spent, Unspent
from tests.support.waiting import until

TENANT = "acme"
USUAL = 100


def limits_of(store: ConversationHistoryStore, seconds: float = 60) -> Limits:
    return Limits(store, held_seconds=seconds, usual_tokens=USUAL)


async def admitted(
    limits: Limits, checks: Sequence[Check], *, reads: int = 10, writes: int = 1000, tenant: str = TENANT
) -> str | None:
    """The id of work that began; None where it was refused."""
    id = limits.history.new_id()
    found = await limits.admit(tenant, id, checks, reads=reads, writes=writes)
    return None if found.refused else id


REQUESTS = Check("all", "requests", "minute", 3)
TOKENS = Check("all", "tokens", "minute", 1000)
PARALLEL = Check("all", "parallel", "", 2)


async def step_back(redis: Redis, prefix: str) -> None:
    """Have what was used of the limits be noted an hour ahead, as by a server's clock that was stepped back since."""
    (key,) = [key async for key in redis.scan_iter(f"{prefix}:*:limits:{TENANT}/all")]
    for field, value in (await redis.hgetall(key)).items():
        flown, noted, limit = map(int, value.split())
        await redis.hset(key, field, f"{flown + 3_600_000_000} {noted + 3_600_000_000} {limit}")


async def test_a_clock_that_steps_back_keeps_nobody_waiting_for_as_long(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    limits = limits_of(store)
    began = [await admitted(limits, [REQUESTS, TOKENS], reads=400, writes=10) for _ in range(3)]
    assert [id is not None for id in began] == [True, True, False]
    await step_back(redis, prefix)
    found = await limits.admit(TENANT, store.new_id(), [REQUESTS, TOKENS], reads=400, writes=10)
    assert found.refused is not None
    assert found.refused.seconds == pytest.approx(13.2, abs=5)
    assert [each.seconds for each in found.left] == pytest.approx([40, 49.2], abs=5)


async def test_a_limit_that_is_used_up_has_room_again_in_time_after_a_clock_stepped_back(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    limits, quick = limits_of(store), Check("all", "tokens", "minute", 60_000)
    assert await admitted(limits, [quick], reads=60_000, writes=0)
    await step_back(redis, prefix)

    async def has_room() -> bool:
        return await admitted(limits, [quick], reads=100, writes=0) is not None

    await until(has_room)  # a tenth of a second's worth


@pytest.mark.parametrize("limit", [1_000_000, 100])
async def test_a_limit_that_is_changed_while_it_is_passed_holds_nobody_up_for_longer(
    store: ConversationHistoryStore, limit: int
) -> None:
    """By 20,000 tokens of 1,000 a minute: nineteen minutes' worth. A higher limit has room for them at once, and the
    next of them is counted by it; a lower one doesn't have them wait for hours."""
    limits, changed = limits_of(store), Check("all", "tokens", "minute", limit)
    id = await admitted(limits, [TOKENS], reads=10, writes=10)
    other = await admitted(limits, [TOKENS], reads=10, writes=10)
    assert id
    assert other
    await limits.settle(TENANT, id, Spent(10, 19_990))
    assert await admitted(limits, [TOKENS], reads=10, writes=10) is None
    found = await limits.admit(TENANT, store.new_id(), [changed], reads=10, writes=10)
    if limit > TOKENS.limit:
        assert found.left[0].amount == pytest.approx(1_000_000 - 20_050, abs=30)
    else:
        assert found.refused is not None
        assert found.refused.seconds == pytest.approx(19 * 60, abs=90)
    await limits.settle(TENANT, other, Spent(0, 0))  # it was taken from the limit of before
    found = await limits.admit(TENANT, store.new_id(), [changed], reads=10, writes=10)
    assert (found.refused is None) == (limit > TOKENS.limit)


async def test_what_is_over_is_settled_before_the_next_one_is_let_begin(store: ConversationHistoryStore) -> None:
    limits = limits_of(store)
    both = [await admitted(limits, [TOKENS, PARALLEL], reads=400, writes=100) for _ in range(2)]
    first, second = map(str, both)
    over = [Over(first, Spent(400, 50)), Over(second, Unspent.NEVER_BEGAN)]
    found = await limits.admit(TENANT, store.new_id(), [TOKENS, PARALLEL], reads=500, writes=10, over=over)
    assert found.refused is None
    assert found.left[0].amount == pytest.approx(1000 - 450 - 510, abs=100)  # a minute's worth flies off meanwhile
    assert found.left[1].amount == 1
    assert await limits.settle_all(TENANT, over) == 0
    with pytest.raises(ValueError, match="are more than"):
        await limits.settle_all(TENANT, [Over(store.new_id(), Unspent.UNKNOWN)] * (MOST_SETTLED + 1))


async def test_whoever_reserved_last_for_a_response_alone_settles_it(store: ConversationHistoryStore) -> None:
    limits, id = limits_of(store), store.new_id()
    for token in ("the one that is lost", "the one that took over"):
        found = await limits.admit(TENANT, id, [PARALLEL], reads=1, writes=1, token=token)
        assert found.left[0].amount == 1
    assert await limits.settle_all(TENANT, [Over(id, Unspent.NEVER_BEGAN, "the one that is lost")]) == 0
    assert await limits.settle_all(TENANT, [Over(id, Spent(1, 1), "the one that took over")]) == 1


async def test_a_refusal_takes_from_no_limit(store: ConversationHistoryStore) -> None:
    limits = limits_of(store)
    month = Check("all", "tokens", "month", 500)
    assert await admitted(limits, [TOKENS, month], reads=350, writes=50)  # 400 of both
    for _ in range(5):
        found = await limits.admit(TENANT, store.new_id(), [REQUESTS, TOKENS, month], reads=150, writes=50)
        assert found.refused is not None
        assert found.refused.check == 2
        assert found.left[0].amount == 3
        assert found.left[1].amount == pytest.approx(600, abs=90)
    assert await admitted(limits, [REQUESTS, TOKENS, month], reads=50, writes=50)


@pytest.mark.parametrize("window", ["minute", "month"])
async def test_work_begins_though_the_tenants_usually_writes_more_than_its_limit(
    store: ConversationHistoryStore, window: Window
) -> None:
    limits, large = limits_of(store), Check("all", "tokens", "month", 100_000)
    await limits.settle(TENANT, str(await admitted(limits, [large])), Spent(10, 5000))
    assert await admitted(limits, [large])  # it wrote 5,000
    check = Check("key", "tokens", window, 1000)
    found = await limits.admit(TENANT, store.new_id(), [check], reads=10, writes=5000)
    assert (found.refused, found.left[0].amount) == (None, 0)
    found = await limits.admit(TENANT, store.new_id(), [check], reads=10, writes=5000)
    assert found.refused is not None
    assert (found.refused.seconds or 0) > 50
    prompt = await limits.admit(TENANT, store.new_id(), [check], reads=1000, writes=10)
    assert prompt.refused is not None
    assert prompt.refused.seconds is None


async def test_it_reserves_what_a_tenant_usually_writes_and_no_more_than_it_may(
    store: ConversationHistoryStore,
) -> None:
    limits, month = limits_of(store), Check("all", "tokens", "month", 100_000)

    async def left(writes: int) -> tuple[str, int]:
        id = store.new_id()
        found = await limits.admit(TENANT, id, [month], reads=10, writes=writes)
        return id, found.left[0].amount

    first, after = await left(5000)
    assert after == 100_000 - 10 - USUAL
    assert await limits.settle(TENANT, first, Spent(10, 40))
    second, after = await left(5000)
    assert after == 100_000 - 50 - 50  # 40 on average, by the first
    assert await limits.settle(TENANT, second, Spent(10, 140))
    _, after = await left(5)
    assert after == 100_000 - 50 - 150 - 15
    _, after = await left(5000)
    assert after == 100_000 - 50 - 150 - 15 - 60  # 40, and a tenth of the 100 more


async def test_what_was_settled_is_settled_once(store: ConversationHistoryStore) -> None:
    limits, month = limits_of(store), Check("all", "tokens", "month", 1000)
    id = await admitted(limits, [month], reads=500, writes=400)
    assert id is not None
    assert await limits.settle(TENANT, id, Spent(500, 20))
    for spent in (Spent(500, 20), Unspent.NEVER_BEGAN, Unspent.UNKNOWN):
        assert not await limits.settle(TENANT, id, spent)
    found = await limits.admit(TENANT, store.new_id(), [month], reads=1, writes=0)
    assert found.left[0].amount == 1000 - 520 - 1


async def test_what_never_began_counts_nothing_and_what_nobody_knows_counts_whole(
    store: ConversationHistoryStore,
) -> None:
    limits, checks = limits_of(store), [REQUESTS, Check("all", "tokens", "month", 1000), PARALLEL]
    one, other = [await admitted(limits, checks, reads=100, writes=50) for _ in range(2)]
    assert one is not None
    assert other is not None
    assert await admitted(limits, checks) is None
    assert await limits.settle(TENANT, one, Unspent.NEVER_BEGAN)
    assert await limits.settle(TENANT, other, Unspent.UNKNOWN)
    found = await limits.admit(TENANT, store.new_id(), checks, reads=0, writes=0)
    assert [left.amount for left in found.left] == [1, 850, 1]


async def test_a_call_that_is_sent_again_takes_nothing(store: ConversationHistoryStore) -> None:
    limits, id = limits_of(store), store.new_id()
    first = await limits.admit(TENANT, id, [REQUESTS, TOKENS, PARALLEL], reads=100, writes=10)
    assert await limits.admit(TENANT, id, [REQUESTS, TOKENS, PARALLEL], reads=100, writes=10) == first
    found = await limits.admit(TENANT, store.new_id(), [REQUESTS, PARALLEL], reads=100, writes=10)
    assert [left.amount for left in found.left] == [1, 0]


async def test_work_that_nobody_holds_gives_its_place_back(store: ConversationHistoryStore) -> None:
    brief, held = limits_of(store, 0.2), limits_of(store)
    lost, kept = await admitted(brief, [PARALLEL]), await admitted(brief, [PARALLEL])
    assert lost is not None
    assert kept is not None
    await held.hold(TENANT, [kept])

    async def begun() -> str | None:
        return await admitted(held, [PARALLEL])

    assert await until(begun) is not None
    assert await begun() is None
    assert [each.id for each in await held.due()] == [lost]
    assert await held.settle(TENANT, lost, Unspent.UNKNOWN)
    assert await held.due() == []


async def test_many_at_once_take_no_more_than_there_is(store: ConversationHistoryStore) -> None:
    limits = limits_of(store)
    checks = [Check("all", "requests", "month", 10), Check("k-1", "parallel", "", 7)]
    began = await asyncio.gather(*(admitted(limits, checks) for _ in range(40)))
    assert sum(each is not None for each in began) == 7


async def test_a_month_is_the_calendars(store: ConversationHistoryStore, redis: Redis) -> None:
    """The numbers of months in lua/limits.lua, beside those of Python's calendar."""
    from datetime import date, timedelta

    from store.redis.scripts import lua

    text = lua("limits").partition("local month,")[0]
    start = date(1970, 1, 1)
    body = f"""{text}
    local found = {{}}
    for day = 0, tonumber(ARGV[1]) do found[day + 1] = month_of(day) end
    return found"""
    found: list[int] = await redis.eval(body, 0, 60_000)
    months = [(start + timedelta(day)) for day in range(60_001)]
    first = found[0]
    assert [number - first for number in found] == [(day.year - 1970) * 12 + day.month - 1 for day in months]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(work=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300)), max_size=12))
async def test_the_count_of_a_month_is_the_sum_of_what_was_spent(
    store: ConversationHistoryStore, work: list[tuple[int, int, int]]
) -> None:
    limits, tenant = limits_of(store), f"t{abs(hash(tuple(work)))}"
    month, total = Check("all", "tokens", "month", 2000), 0
    await limits.settle(tenant, "resp_" + "0" * 48, Unspent.UNKNOWN)
    for reads, writes, written in work:
        id = await admitted(limits, [month], reads=reads, writes=writes, tenant=tenant)
        if id is not None:
            total += reads + written
            await limits.settle(tenant, id, Spent(reads, written))
    found = await limits.admit(tenant, store.new_id(), [month], reads=0, writes=0)
    assert found.left[0].amount == max(0, 2000 - total)
