"""Recognised turns: found by what was said up to their end, by their own tenant, and never once they are gone."""

from collections.abc import Awaitable, Callable
from hashlib import blake2b

import pytest
from redis.asyncio import Redis

from store.history.history import MOST_DIGESTS, ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.turn import SAID_BYTES, Status, Turn
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT, grow, turn, with_words
from tests.support.store.work import submit

KEY = "together"
DIGEST = blake2b(b"hello", digest_size=SAID_BYTES).digest()
OTHER = blake2b(b"other", digest_size=SAID_BYTES).digest()


def words(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=SAID_BYTES).digest()


async def say(
    store: ConversationHistoryStore,
    said: bytes = DIGEST,
    *,
    parent: str | None = None,
    tenant: str = TENANT,
    status: Status = Status.COMPLETED,
) -> str:
    """Append a turn with these words; its id."""
    id = store.new_id(parent, together="" if parent else KEY)
    await store.append(tenant, with_words(turn(id, parent, text=id, status=status), said))
    return id


async def found(
    store: ConversationHistoryStore, *digests: bytes, tenant: str = TENANT, forks: bool = True
) -> tuple[int, str] | None:
    return await store.recognise(tenant, KEY, digests or [DIGEST], forks=forks)


async def test_the_first_digest_that_is_known_is_the_one_that_is_found(store: ConversationHistoryStore) -> None:
    root = await say(store, OTHER)
    child = await say(store, DIGEST, parent=root)
    assert await found(store, words(1), DIGEST, OTHER) == (1, child)
    assert await found(store, words(1), OTHER, DIGEST) == (1, root)


async def test_another_tenant_s_words_are_never_found(store: ConversationHistoryStore) -> None:
    theirs = await say(store, tenant="globex")
    assert await found(store) is None
    mine = await say(store)
    assert (await found(store), await found(store, tenant="globex")) == ((0, mine), (0, theirs))


async def test_digests_that_begin_alike_are_told_apart(store: ConversationHistoryStore) -> None:
    id = await say(store)
    assert await found(store, DIGEST[:8] + bytes(8)) is None
    assert await found(store, DIGEST[:8] + bytes(8), DIGEST) == (1, id)


Gone = Callable[[ConversationHistoryStore, str], Awaitable[object]]
GOES: dict[str, Gone] = {
    "deleted": lambda store, id: store.forget(TENANT, id),
    "erased": lambda store, id: store.forget(TENANT, id, erase=True),
    "in a deleted tree": lambda store, id: store.forget_tree(TENANT, id),
    "redacted": lambda store, id: store.redact(TENANT, id, lambda messages, response, items: (messages, b"{}", items)),
}


@pytest.mark.parametrize("go", GOES.values(), ids=GOES.keys())
async def test_a_turn_that_lost_something_is_found_no_more(
    store: ConversationHistoryStore, redis: Redis, prefix: str, go: Gone
) -> None:
    id = await say(store)
    await grow(store, "next", parent=id)
    await go(store, id)
    assert await found(store) is None
    assert not [key for key in await dump(redis, prefix) if ":said:" in key]


async def test_what_can_t_be_a_digest_is_refused(store: ConversationHistoryStore) -> None:
    assert await store.recognise(TENANT, KEY, [], forks=True) is None
    assert await found(store, *map(words, range(MOST_DIGESTS))) is None
    for digests in ([b"short"], list(map(words, range(MOST_DIGESTS + 1)))):
        with pytest.raises(ValueError, match="digests must be 64 or fewer, each of 16 bytes"):
            await store.recognise(TENANT, KEY, digests, forks=True)
    with pytest.raises(ValueError, match="has 5 bytes, and must have 16"):
        Turn(store.new_id(), None, Status.COMPLETED, (), b"{}", said=b"short")


async def test_of_turns_with_the_same_words_none_is_found_until_all_of_them_are_gone(
    store: ConversationHistoryStore,
) -> None:
    first, second = await say(store), await say(store)
    assert await found(store) is None
    await store.forget(TENANT, second)
    assert await found(store) is None
    await store.forget(TENANT, first)
    third = await say(store)
    assert await found(store) == (0, third)
    await store.append(TENANT, with_words(turn(third, text=third), DIGEST))  # a retry
    assert await found(store) == (0, third)


async def test_a_turn_that_is_continued_is_found_as_a_fork_alone(jobs: Jobs) -> None:
    store, root = jobs.history, await say(jobs.history)
    await say(store, words(1), parent=root, status=Status.FAILED)
    assert await found(store, forks=False) == (0, root)
    await store.pin(TENANT, root, "a run's")
    assert (await found(store, forks=False), await found(store)) == (None, (0, root))
    await store.unpin(TENANT, root, "a run's")
    assert await found(store, forks=False) == (0, root)
    await submit(jobs, parent=root)
    assert (await found(store, forks=False), await found(store)) == (None, (0, root))
    (job,) = (await jobs.claim(0, 1)).jobs
    await jobs.finish(job.lease, turn(job.lease.id, root), LogEntry(9, b"the end"))
    assert (await found(store, forks=False), await found(store)) == (None, (0, root))


async def test_a_turn_that_is_continued_in_the_foreground_is_found_as_a_fork_alone(
    store: ConversationHistoryStore,
) -> None:
    root = await say(store)
    child = await say(store, words(1), parent=root)
    assert (await found(store, forks=False), await found(store)) == (None, (0, root))
    assert await found(store, words(1), DIGEST, forks=False) == (0, child)
