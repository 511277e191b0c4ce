"""Requests with a key: one at a time makes each, as one turn, whoever dies, repeats or comes late."""

import json

import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.history.idempotency import FoundRequest, Keyed, KeyedRequests, TakenRequest
from tests.support.store.sample import TENANT
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


async def asked(them: KeyedRequests, key: bytes = b"key", body: bytes = b"{}", tenant: str = TENANT) -> Keyed:
    return await them.request(tenant, ROUTE, key, body)


async def taken(them: KeyedRequests, request: Keyed, owner: str) -> TakenRequest:
    """What becomes of a request once who has it is taken for dead."""
    return await until(
        lambda: them.take(request, owner), SECONDS, wanted=lambda found: found.found is not FoundRequest.THEIRS
    )


async def test_who_takes_over_from_a_dead_one_makes_it_as_the_same_turn_and_knows_of_calls(
    brief: KeyedRequests,
) -> None:
    request = await asked(brief)
    await brief.take(request, ONE)
    await brief.name(request, ONE, DIGITS, kept=True)
    assert await brief.renew(request, ONE, calls=2)

    assert await taken(brief, request, TWO) == TakenRequest(FoundRequest.MINE, DIGITS, calls=2)
    assert not await brief.renew(request, ONE)
    assert not await brief.name(request, ONE, OTHER, kept=True)
    await brief.end(request, ONE, made=False)
    assert await taken(brief, request, THREE) == TakenRequest(FoundRequest.MINE, DIGITS, calls=2)


async def test_who_died_when_the_clock_was_ahead_keeps_nobody_from_it(
    them: KeyedRequests, redis: Redis, prefix: str
) -> None:
    request = await asked(them)
    await them.take(request, ONE)
    await them.name(request, ONE, DIGITS, kept=True)
    shard = request.keys.digits[:2]
    record = json.loads(await redis.hget(f"{prefix}:{{{shard}}}:keyed:{TENANT}", request.keys.digits) or "")
    record["lease"] += 3 * 3_600_000
    await redis.hset(f"{prefix}:{{{shard}}}:keyed:{TENANT}", request.keys.digits, json.dumps(record))

    assert await them.take(request, TWO) == TakenRequest(FoundRequest.MINE, DIGITS)
    assert not await them.renew(request, ONE)


async def test_what_a_dead_one_may_yet_store_keeps_its_name_though_the_next_one_fails(brief: KeyedRequests) -> None:
    request, other = await asked(brief), await asked(brief, body=b"{} ")
    await brief.take(request, ONE)
    await brief.name(request, ONE, DIGITS, kept=True)
    assert await taken(brief, request, TWO) == TakenRequest(FoundRequest.MINE, DIGITS)
    await brief.end(request, TWO, made=False)

    assert await brief.take(other, THREE) == TakenRequest(FoundRequest.OTHER)
    assert await brief.take(request, THREE) == TakenRequest(FoundRequest.MINE, DIGITS)


async def test_those_that_ended_first_go_for_new_ones(
    history: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them = KeyedRequests(history, most=3)
    requests = [await asked(them, bytes([65 + number])) for number in range(5)]
    for number, request in enumerate(requests[:3]):
        assert await them.take(request, ONE) == TakenRequest(FoundRequest.MINE)
        await them.name(request, ONE, DIGITS, kept=True)
        await them.end(request, ONE, made=True)
        await redis.zincrby(f"{prefix}:{{00}}:keyed-until:{TENANT}", number - 9, request.keys.digits)

    assert await them.take(requests[0], TWO) == TakenRequest(FoundRequest.MADE, DIGITS), "a repeat drives nothing out"
    for request in requests[3:]:
        assert await them.take(request, ONE) == TakenRequest(FoundRequest.MINE)
    assert await redis.hlen(f"{prefix}:{{00}}:keyed:{TENANT}") == 3
    assert await them.take(requests[2], TWO) == TakenRequest(FoundRequest.MADE, DIGITS)


async def test_what_is_being_made_never_goes_for_new_ones(history: ConversationHistoryStore) -> None:
    them = KeyedRequests(history, most=2)
    for key in (b"a", b"b"):
        assert await them.take(await asked(them, key), ONE) == TakenRequest(FoundRequest.MINE)

    assert await them.take(await asked(them, b"c"), ONE) == TakenRequest(FoundRequest.FULL)
    assert await them.take(await asked(them, b"c", tenant="another"), ONE) == TakenRequest(FoundRequest.MINE)
    await them.end(await asked(them, b"a"), ONE, made=False)
    assert await them.take(await asked(them, b"c"), ONE) == TakenRequest(FoundRequest.MINE)


async def test_whoever_makes_it_after_one_that_failed_is_told_of_its_calls(them: KeyedRequests) -> None:
    request = await asked(them)
    assert await them.take(request, ONE) == TakenRequest(FoundRequest.MINE)
    assert await them.name(request, ONE, DIGITS, kept=True)
    assert await them.renew(request, ONE, calls=2)
    await them.end(request, ONE, made=False)
    assert await them.take(request, TWO) == TakenRequest(FoundRequest.MINE, DIGITS, 2)


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
    assert await them.take(request, TWO) == TakenRequest(FoundRequest.MINE)


async def test_nothing_of_a_key_or_a_body_is_stored(them: KeyedRequests, redis: Redis, prefix: str) -> None:
    request = await asked(them, b"Ada's key", b'{"input": "Ada\'s secret"}')
    await them.take(request, ONE)
    stored = [key async for key in redis.scan_iter(f"{prefix}:*")]
    for key in list(stored):
        if b":keyed:" in key:
            stored += [part for pair in (await redis.hgetall(key)).items() for part in pair]

    assert len(stored) == 4
    assert not [each for each in stored if b"Ada" in each]


async def test_a_lost_reply_changes_nothing(lost_replies: None, store: ConversationHistoryStore) -> None:
    them = KeyedRequests(store)
    request = await asked(them)

    assert await them.take(request, ONE) == TakenRequest(FoundRequest.MINE)
    assert await them.name(request, ONE, DIGITS, kept=True)
    assert await them.renew(request, ONE)
    await them.end(request, ONE, made=True)
    assert await them.take(request, TWO) == TakenRequest(FoundRequest.MADE, DIGITS)
