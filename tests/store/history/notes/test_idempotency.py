"""Requests with a key: one at a time makes each, as one turn, whoever dies, repeats or comes late."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.history.idempotency import Found, Keyed, KeyedRequests, Taken
from store.listening import Listening
from store.redis import connection
from store.redis.connection import connect
from tests.support.store.audit import complaints
from tests.support.store.lossy import LossyOperation
from tests.support.store.sample import TENANT, turn
from tests.support.waiting import until

ROUTE = "/v1/responses"
ONE, TWO, THREE = "1" * 24, "2" * 24, "3" * 24
DIGITS, OTHER = "00" + "a" * 46, "00" + "b" * 46
BRIEFLY = 0.03
SECONDS = 10.0


@pytest.fixture
def them(store: ConversationHistoryStore) -> KeyedRequests:
    return KeyedRequests(store)


@pytest.fixture
def brief(history: ConversationHistoryStore) -> KeyedRequests:
    """Who isn't heard of for a moment is taken for dead."""
    return KeyedRequests(history, lease_seconds=BRIEFLY)


@pytest.fixture
async def listening(server_url: str) -> AsyncIterator[Listening]:
    client = connect(server_url)
    listening = Listening(client)
    yield listening
    await listening.close()
    await client.aclose()


async def asked(them: KeyedRequests, key: bytes = b"key", body: bytes = b"{}", tenant: str = TENANT) -> Keyed:
    return await them.request(tenant, ROUTE, key, body)


async def taken(them: KeyedRequests, request: Keyed, owner: str) -> Taken:
    """What becomes of a request once who has it is taken for dead."""
    return await until(lambda: them.take(request, owner), SECONDS, wanted=lambda found: found.found is not Found.THEIRS)


async def test_a_request_is_made_once_and_then_known(them: KeyedRequests) -> None:
    request = await asked(them)

    assert await them.take(request, ONE) == Taken(Found.MINE)
    assert await them.take(request, TWO) == Taken(Found.THEIRS)
    assert await them.name(request, ONE, DIGITS, kept=True)
    assert await them.renew(request, ONE)
    assert await them.take(request, TWO) == Taken(Found.THEIRS)
    await them.end(request, ONE, made=True)

    assert await them.take(request, TWO) == Taken(Found.MADE, DIGITS)
    assert not await them.renew(request, ONE)
    assert not await them.name(request, ONE, OTHER, kept=True)
    await them.end(request, TWO, made=False)
    assert await them.take(request, THREE) == Taken(Found.MADE, DIGITS)


async def test_one_of_many_that_come_at_once_makes_it(them: KeyedRequests) -> None:
    request = await asked(them)
    found = await asyncio.gather(*(them.take(request, f"{number:024x}") for number in range(20)))

    assert Counter(each.found for each in found) == {Found.MINE: 1, Found.THEIRS: 19}


async def test_tenants_routes_and_keys_are_apart(them: KeyedRequests) -> None:
    requests = [
        await asked(them),
        await asked(them, tenant="another"),
        await asked(them, b"yek"),
        await them.request(TENANT, "/v1/conversations", b"key", b"{}"),
        await them.request(TENANT, "/v1/responses key", b"", b"{}"),
    ]
    for request in requests:
        assert await them.take(request, ONE) == Taken(Found.MINE)
    assert len({(each.keys.tenant, each.keys.digits) for each in requests}) == len(requests)


async def test_a_key_with_another_body_is_refused_as_long_as_it_is_known(them: KeyedRequests) -> None:
    request, other = await asked(them), await asked(them, body=b"{} ")
    await them.take(request, ONE)

    assert await them.take(other, TWO) == Taken(Found.OTHER)
    await them.name(request, ONE, DIGITS, kept=True)
    await them.end(request, ONE, made=True)
    assert await them.take(other, TWO) == Taken(Found.OTHER)


async def test_what_was_not_made_is_not_known(them: KeyedRequests, redis: Redis, prefix: str) -> None:
    request, other = await asked(them), await asked(them, body=b"{} ")
    await them.take(request, ONE)
    await them.end(request, ONE, made=False)
    assert await redis.keys(f"{prefix}:*keyed*") == []

    assert await them.take(other, TWO) == Taken(Found.MINE)
    await them.name(other, TWO, DIGITS, kept=True)
    await them.end(other, TWO, made=False)
    assert await them.take(request, THREE) == Taken(Found.MINE)


async def test_what_is_not_stored_is_not_told_again(them: KeyedRequests) -> None:
    request = await asked(them)
    await them.take(request, ONE)
    await them.name(request, ONE, DIGITS, kept=False)

    assert await them.take(request, TWO) == Taken(Found.UNTOLD)
    await them.end(request, ONE, made=True)
    assert await them.take(request, TWO) == Taken(Found.UNTOLD)


async def test_who_takes_over_from_a_dead_one_makes_it_as_the_same_turn(brief: KeyedRequests) -> None:
    request = await asked(brief)
    await brief.take(request, ONE)
    await brief.name(request, ONE, DIGITS, kept=True)

    assert await taken(brief, request, TWO) == Taken(Found.MINE, DIGITS)
    assert not await brief.renew(request, ONE)
    assert not await brief.name(request, ONE, OTHER, kept=True)
    await brief.end(request, ONE, made=False)
    assert await taken(brief, request, THREE) == Taken(Found.MINE, DIGITS)


async def test_what_nobody_has_named_is_taken_over_as_new(brief: KeyedRequests) -> None:
    request = await asked(brief)
    await brief.take(request, ONE)

    assert await taken(brief, request, TWO) == Taken(Found.MINE)
    assert not await brief.name(request, ONE, DIGITS, kept=True)
    assert await brief.name(request, TWO, OTHER, kept=True)


async def test_a_dead_one_that_named_nothing_leaves_the_key_to_another_body(brief: KeyedRequests) -> None:
    request, other = await asked(brief), await asked(brief, body=b"{} ")
    await brief.take(request, ONE)

    found = await until(lambda: brief.take(other, TWO), SECONDS, wanted=lambda found: found.found is not Found.OTHER)
    assert found == Taken(Found.MINE)


async def test_what_a_dead_one_may_yet_store_keeps_its_name_though_the_next_one_fails(brief: KeyedRequests) -> None:
    request, other = await asked(brief), await asked(brief, body=b"{} ")
    await brief.take(request, ONE)
    await brief.name(request, ONE, DIGITS, kept=True)
    assert await taken(brief, request, TWO) == Taken(Found.MINE, DIGITS)
    await brief.end(request, TWO, made=False)

    assert await brief.take(other, THREE) == Taken(Found.OTHER)
    assert await brief.take(request, THREE) == Taken(Found.MINE, DIGITS)


async def test_what_is_not_stored_is_made_by_the_next_one_where_its_maker_died(brief: KeyedRequests) -> None:
    request = await asked(brief)
    await brief.take(request, ONE)
    await brief.name(request, ONE, DIGITS, kept=False)
    found = await until(lambda: brief.take(request, TWO), SECONDS, wanted=lambda found: found.found is not Found.UNTOLD)

    assert found == Taken(Found.MINE, DIGITS)


async def test_who_waits_is_told_of_every_end(them: KeyedRequests, listening: Listening) -> None:
    request = await asked(them)
    for made in (False, True):
        await them.take(request, ONE)
        await them.name(request, ONE, DIGITS, kept=True)
        async with listening.channel(them.channel(request)) as listener:
            await them.end(request, ONE, made=made)
            assert await listener.messages(SECONDS) == [b""]


async def test_those_that_ended_first_go_for_new_ones(
    history: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them = KeyedRequests(history, most=3)
    requests = [await asked(them, bytes([65 + number])) for number in range(5)]
    for number, request in enumerate(requests[:3]):
        assert await them.take(request, ONE) == Taken(Found.MINE)
        await them.name(request, ONE, DIGITS, kept=True)
        await them.end(request, ONE, made=True)
        await redis.zincrby(f"{prefix}:{{00}}:keyed-until:{TENANT}", number - 9, request.keys.digits)

    assert await them.take(requests[0], TWO) == Taken(Found.MADE, DIGITS), "a repeat drives nothing out"
    for request in requests[3:]:
        assert await them.take(request, ONE) == Taken(Found.MINE)
    assert await redis.hlen(f"{prefix}:{{00}}:keyed:{TENANT}") == 3
    assert await them.take(requests[2], TWO) == Taken(Found.MADE, DIGITS)


async def test_what_is_being_made_never_goes_for_new_ones(history: ConversationHistoryStore) -> None:
    them = KeyedRequests(history, most=2)
    for key in (b"a", b"b"):
        assert await them.take(await asked(them, key), ONE) == Taken(Found.MINE)

    assert await them.take(await asked(them, b"c"), ONE) == Taken(Found.FULL)
    assert await them.take(await asked(them, b"c", tenant="another"), ONE) == Taken(Found.MINE)
    await them.end(await asked(them, b"a"), ONE, made=False)
    assert await them.take(await asked(them, b"c"), ONE) == Taken(Found.MINE)


async def test_a_bound_that_was_lowered_is_come_to(
    history: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them = KeyedRequests(history)
    for number in range(250):
        request = await asked(them, b"%d" % number)
        await them.take(request, ONE)
        await them.end(request, ONE, made=True)
    fewer = KeyedRequests(history, most=5)
    for number in range(3):
        await fewer.take(await asked(fewer, b"new %d" % number), ONE)

    assert await redis.hlen(f"{prefix}:{{00}}:keyed:{TENANT}") == 5
    assert await redis.zcard(f"{prefix}:{{00}}:keyed-until:{TENANT}") == 5


async def test_a_request_is_known_for_so_long_after_its_end(
    history: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them = KeyedRequests(history, kept_seconds=3600)
    request, untils = await asked(them), f"{prefix}:{{00}}:keyed-until:{TENANT}"
    await them.take(request, ONE)
    await them.name(request, ONE, DIGITS, kept=True)
    await them.end(request, ONE, made=True)
    for key in (untils, f"{prefix}:{{00}}:keyed:{TENANT}"):
        assert 3600 - 60 < await redis.pttl(key) / 1000 <= 3600
    await KeyedRequests(history, kept_seconds=60).take(await asked(them, b"another"), ONE)
    assert await redis.pttl(untils) / 1000 > 3600 - 60, "another's shorter time ends none of those before"

    await redis.zincrby(untils, -3600_000, request.keys.digits)
    assert await them.take(request, TWO) == Taken(Found.MINE)


async def test_nothing_of_a_key_or_a_body_is_stored(them: KeyedRequests, redis: Redis, prefix: str) -> None:
    request = await asked(them, b"Ada's key", b'{"input": "Ada\'s secret"}')
    await them.take(request, ONE)
    stored = [key async for key in redis.scan_iter(f"{prefix}:*")]
    for key in list(stored):
        if b":keyed:" in key:
            stored += [part for pair in (await redis.hgetall(key)).items() for part in pair]

    assert len(stored) == 4
    assert not [each for each in stored if b"Ada" in each]


async def test_it_is_known_whether_what_was_named_is_stored(store: ConversationHistoryStore) -> None:
    them, id = KeyedRequests(store), store.new_id()
    digits = id.removeprefix("resp_")
    assert not await them.is_stored(TENANT, digits)
    await store.append(TENANT, turn(id))

    assert await them.is_stored(TENANT, digits)
    assert not await them.is_stored("another", digits)


async def test_a_large_body_is_told_from_another(them: KeyedRequests) -> None:
    body = b" " * 300_000
    assert (await asked(them, body=body)).body == (await asked(them, body=bytes(body))).body
    assert (await asked(them, body=body)).body != (await asked(them, body=body[:-1] + b"1")).body


async def test_what_is_stored_of_a_body_tells_nobody_whether_another_key_came_with_it(them: KeyedRequests) -> None:
    assert (await asked(them, b"one")).body != (await asked(them, b"two")).body


def test_a_lease_that_outlasts_what_is_known_is_refused(unaudited: ConversationHistoryStore) -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        KeyedRequests(unaudited, lease_seconds=10, kept_seconds=10)


async def test_a_lost_reply_changes_nothing(lost_replies: None, store: ConversationHistoryStore) -> None:
    assert connection.Operation is LossyOperation
    them = KeyedRequests(store)
    request = await asked(them)

    assert await them.take(request, ONE) == Taken(Found.MINE)
    assert await them.name(request, ONE, DIGITS, kept=True)
    assert await them.renew(request, ONE)
    await them.end(request, ONE, made=True)
    assert await them.take(request, TWO) == Taken(Found.MADE, DIGITS)


async def test_many_shards_share_them(server_url: str, redis: Redis, prefix: str) -> None:
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=16)
    them = KeyedRequests(store)
    requests = [await asked(them, b"%d" % number) for number in range(200)]
    for request in requests:
        assert await them.take(request, ONE) == Taken(Found.MINE)
    sizes = [await redis.hlen(f"{prefix}:{{{shard:02x}}}:keyed:{TENANT}") for shard in range(16)]

    assert sum(sizes) == 200
    assert min(sizes) > 0
    assert await complaints(redis, prefix) == []
    await store.close()
