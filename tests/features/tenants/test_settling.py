"""Limits that nobody settled: all that is due is seen to."""

from service.api.request import read_create
from service.entrance import Entry
from service.features.tenants.settling import settle_due
from service.process import Settings
from service.responses.service import Caller, Service
from store.limits import MOST_DUE, Check
from tests.support.chaos.inside import opened
from tests.support.service.background import changed
from tests.support.service.making import queue_response
from tests.support.service.process import MODEL
from tests.support.service.tenants import limits_in
from tests.support.store.sample import turn

MONTH = Check("all", "tokens", "month", 1_000_000)


async def test_all_that_is_due_is_looked_at_however_much_it_is(settings: Settings) -> None:
    async with opened(changed(settings, tenant_limits={"max_tokens_per_1_month": MONTH.limit})) as service:
        limits = limits_in(service)
        for number in range(2 * MOST_DUE + 1):
            await reserve(service, service.store.new_id(), number)
        assert await settle_due(limits) == 2 * MOST_DUE + 1
        assert await limits.due() == []


async def test_what_a_newer_release_has_stored_and_what_is_under_way_are_in_nobodys_way(settings: Settings) -> None:
    async with opened(changed(settings, tenant_limits={"max_tokens_per_1_month": MONTH.limit})) as service:
        limits, store = limits_in(service), service.store
        newer, under_way = store.new_id(), store.new_id()
        await store.append("acme", turn(newer))
        asked = read_create(b'{"model":"%s","input":"hi","background":true}' % MODEL.encode(), store=True)
        await queue_response(service, Caller(Entry("acme"), response_id=under_way), asked)
        async with store.server.operation() as operation:
            await operation.command("SETRANGE", store.keyspace.response("acme", newer).key("response"), 0, b"\xee")
        for number, id in enumerate((newer, under_way)):
            await reserve(service, id, number)
        assert await settle_due(limits) == 2
        assert await limits.due() == []
        (shard,) = store.keyspace.all_shards()
        async with store.server.operation() as operation:
            assert await operation.command("ZCARD", shard.reservations) == 2, "nothing is settled"


async def reserve(service: Service, id: str, at: int) -> None:
    """Reserve for a response, of which it is long ago that anybody said anything."""
    await limits_in(service).admit("acme", id, [MONTH], reads=1, writes=0)
    (shard,) = service.store.keyspace.all_shards()
    async with service.store.server.operation() as operation:
        await operation.command("ZADD", shard.reservations, at, f"acme/{service.store.keyspace.digits(id)}")
