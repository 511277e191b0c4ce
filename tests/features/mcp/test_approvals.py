"""Approvals: each is used up once, by one response, whoever asks for it and however often."""

import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.approvals import APPROVAL_SECONDS, StoredApprovals, Use
from store.history.caps import UNBOUNDED, Caps
from store.history.history import ConversationHistoryStore
from tests.support.store.audit import complaints
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT

DIGEST, OTHER = "00ff", "ff00"


async def test_an_approval_is_used_up_by_one_response_alone(store: ConversationHistoryStore) -> None:
    them, id = StoredApprovals(store), store.new_id()
    one, other = store.new_id(id), store.new_id(id)
    await them.ask(TENANT, id, {3: DIGEST})

    assert await them.look(TENANT, id, 3, DIGEST) is Use.NEW
    assert await them.use_up(TENANT, id, 3, DIGEST, by=one, run="one") is Use.NEW
    assert await them.use_up(TENANT, id, 3, DIGEST, by=one, run="one") is Use.AGAIN
    assert await them.use_up(TENANT, id, 3, DIGEST, by=one, run="another") is Use.BEGUN
    assert await them.use_up(TENANT, id, 3, DIGEST, by=other, run="one") is Use.GONE
    assert await them.look(TENANT, id, 3, DIGEST) is Use.GONE
    assert await them.look(TENANT, id, 3, DIGEST, by=one) is Use.BEGUN


async def test_what_was_not_asked_for_cant_be_used(store: ConversationHistoryStore) -> None:
    them, id = StoredApprovals(store), store.new_id()
    await them.ask(TENANT, id, {3: DIGEST})

    assert await them.use_up(TENANT, id, 3, OTHER, by=id, run="one") is Use.UNKNOWN
    assert await them.use_up(TENANT, id, 2, DIGEST, by=id, run="one") is Use.UNKNOWN
    assert await them.use_up(TENANT, store.new_id(), 3, DIGEST, by=id, run="one") is Use.UNKNOWN
    assert await them.use_up("another", id, 3, DIGEST, by=id, run="one") is Use.UNKNOWN
    assert await them.use_up(TENANT, f"resp_ff{'0' * 46}", 3, DIGEST, by=id, run="one") is Use.UNKNOWN
    assert await them.look(TENANT, id, 3, DIGEST) is Use.NEW
    with pytest.raises(NotFound):
        await them.ask(TENANT, "resp_1", {0: DIGEST})


async def test_the_oldest_go_for_new_ones_and_cant_be_used_any_more(
    store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them, ids = StoredApprovals(store, most=2), [store.new_id() for _ in range(3)]
    for age, id in zip((2, 1), ids[:2], strict=True):
        await them.ask(TENANT, id, {0: DIGEST})
        assert await them.use_up(TENANT, id, 0, DIGEST, by=id, run="one") is Use.NEW
        await redis.zincrby(f"{prefix}:{{00}}:approvals:{TENANT}", -age, f"{id[5:]}0000/")
    await them.ask(TENANT, ids[2], {0: DIGEST})

    assert await them.use_up(TENANT, ids[0], 0, DIGEST, by=ids[0], run="one") is Use.UNKNOWN
    assert await them.look(TENANT, ids[1], 0, DIGEST) is Use.GONE
    assert await them.look(TENANT, ids[2], 0, DIGEST) is Use.NEW
    assert await redis.zcard(f"{prefix}:{{00}}:approvals:{TENANT}") == 2
    assert await redis.hlen(f"{prefix}:{{00}}:approved:{TENANT}") == 1


@pytest.mark.parametrize(("caps", "seconds"), [(Caps(idle_seconds=3600), 3600), (UNBOUNDED, APPROVAL_SECONDS)])
async def test_an_approval_lasts_as_long_as_a_conversation_may_be_idle(
    redis: Redis, open_store: OpenStore, prefix: str, caps: Caps, seconds: float
) -> None:
    store = open_store(caps=caps)
    them, id, late = StoredApprovals(store), store.new_id(), store.new_id()
    asking, using = (f"{prefix}:{{00}}:{name}:{TENANT}" for name in ("approvals", "approved"))
    for each in (id, late):
        await them.ask(TENANT, each, {0: DIGEST})
    assert await them.use_up(TENANT, id, 0, DIGEST, by=id, run="one") is Use.NEW

    for key in (asking, using):
        assert seconds - 60 < await redis.pttl(key) / 1000 <= seconds
    await redis.zincrby(asking, -seconds * 1000, f"{late[5:]}0000/{DIGEST}")
    assert await them.use_up(TENANT, late, 0, DIGEST, by=id, run="one") is Use.UNKNOWN
    await them.ask(TENANT, store.new_id(), {0: DIGEST})
    assert await redis.zscore(asking, f"{late[5:]}0000/{DIGEST}") is None
    assert await complaints(redis, prefix) == []


async def test_a_lost_reply_uses_nothing_up(
    lost_replies: None, store: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    them, id = StoredApprovals(store), store.new_id()
    await them.ask(TENANT, id, {0: DIGEST})

    assert await them.use_up(TENANT, id, 0, DIGEST, by=id, run="one") in (Use.NEW, Use.AGAIN)
    assert await them.use_up(TENANT, id, 0, DIGEST, by=store.new_id(), run="one") is Use.GONE
