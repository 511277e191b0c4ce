"""Limits that nobody settled: all that is due is seen to, and nothing stands in the way of the rest."""

import asyncio

import pytest
from redis.asyncio import Redis

from service.background.tasks import settle_due
from service.responses.service import Service
from service.settings.core import DEFAULT_TENANT
from service.settings.settings import Settings
from service.tenants.limits import Allowance, Limit
from store.limits import MOST_DUE, Check
from store.redis.connection import connect
from tests.support.chaos.inside import opened
from tests.support.service.background import changed
from tests.support.service.inside import serving
from tests.support.service.seen import ask
from tests.support.store.audit import scores

TENANT = "acme"
MONTH = Check("all", "tokens", "month", 1_000_000)


async def reserved(service: Service, many: int) -> list[str]:
    """The ids of so many pieces of work, of which it is long ago that anybody said anything."""
    limits, ids = service.tenants.limiter.limits, [service.store.new_id() for _ in range(many)]
    for id in ids:
        await limits.admit(TENANT, id, [MONTH], reads=1, writes=0)
    (shard,) = service.store.keyspace.all_shards()
    async with service.store.server.operation() as operation:
        for at, id in enumerate(ids):
            member = f"{TENANT}/{service.store.keyspace.digits(id)}"
            await operation.command("ZADD", shard.reservations, at, member)
    return ids


@pytest.fixture
def limited(settings: Settings) -> Settings:
    return changed(settings, tenant_limits={"max_tokens_per_1_month": MONTH.limit})


async def test_all_that_is_due_is_looked_at_however_much_it_is(limited: Settings) -> None:
    async with opened(limited) as service:
        await reserved(service, 2 * MOST_DUE + 1)
        assert await settle_due(service.tenants.limiter.limits) == 2 * MOST_DUE + 1
        assert await service.tenants.limiter.limits.due() == []


@pytest.mark.parametrize("accepted", [True, False])
async def test_work_that_is_cut_off_while_it_is_handed_over_counts_if_it_was_accepted(
    limited: Settings, accepted: bool
) -> None:
    async with opened(limited) as service:
        service.loans._late_seconds = 0.1
        allowance = Allowance(TENANT, Limit(max_tokens_per_1_month=MONTH.limit))
        began, asked = asyncio.Event(), asyncio.Event()

        async def is_there() -> bool:
            asked.set()
            return accepted

        async def hand_over() -> None:
            async with service.tenants.limiter.reserving(
                allowance, "m", service.store.new_id(), reads=100, writes=0
            ) as reserved:
                assert reserved is not None
                with reserved.handed_over(is_there):
                    began.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(hand_over())
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        await asked.wait()
        await service.loans.close()
        found = await service.tenants.limiter.limits.admit(TENANT, service.store.new_id(), [MONTH], reads=0, writes=0)
        assert found.left[0].amount == MONTH.limit - (100 if accepted else 0)


async def test_to_settle_a_response_is_not_to_use_it(settings: Settings) -> None:
    async with opened(settings) as service, serving(settings) as inside, inside.client() as client:
        first, second = [await ask(client, input=word) for word in ("One", "Two")]
        redis, prefix = connect(settings.redis_url), settings.key_prefix
        try:
            limits, (shard,) = service.tenants.limiter.limits, service.store.keyspace.all_shards()
            await limits.admit(DEFAULT_TENANT, first.id, [MONTH], reads=10, writes=50_000)  # more than it took
            await redis.zadd(shard.reservations, {f"{DEFAULT_TENANT}/{first.id[5:]}": 0})
            before = await order(redis, prefix)
            assert before == [first.id, second.id] * 2
            assert await settle_due(service.tenants.limiter.limits) == 1
            assert await order(redis, prefix) == before
            assert await redis.zcard(shard.reservations) == 0
            another = service.store.new_id()
            found = await limits.admit(DEFAULT_TENANT, another, [MONTH], reads=0, writes=0)
            assert first.usage is not None
            assert MONTH.limit - found.left[0].amount == first.usage.total_tokens
        finally:
            await redis.aclose()


async def order(redis: Redis, prefix: str) -> list[str]:
    """Trees and leaves, in each the one first that was used least recently."""
    trees, leaves = [list(await scores(redis, prefix, name)) for name in ("trees", f"leaves:{DEFAULT_TENANT}")]
    return trees + leaves
