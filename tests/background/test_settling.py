"""Limits that nobody settled: all that is due is seen to."""

from service.background.tasks import settle_due
from service.settings.settings import Settings
from store.limits import MOST_DUE, Check
from tests.support.chaos.inside import opened
from tests.support.service.background import changed

MONTH = Check("all", "tokens", "month", 1_000_000)


async def test_all_that_is_due_is_looked_at_however_much_it_is(settings: Settings) -> None:
    async with opened(changed(settings, tenant_limits={"max_tokens_per_1_month": MONTH.limit})) as service:
        limits, store = service.tenants.limiter.limits, service.store
        (shard,) = store.keyspace.all_shards()
        for number in range(2 * MOST_DUE + 1):
            id = store.new_id()
            await limits.admit("acme", id, [MONTH], reads=1, writes=0)
            async with store.server.operation() as operation:  # it is long ago that anybody said anything of it
                await operation.command("ZADD", shard.reservations, number, f"acme/{store.keyspace.digits(id)}")
        assert await settle_due(limits) == 2 * MOST_DUE + 1
        assert await limits.due() == []
