"""The branches of a tree that left memory are told by their ends, and what is deleted of them is not."""

import pytest
from redis.asyncio import Redis

from store.history.elsewhere import AwayBranches
from store.keys import digits_of
from tests.support.archive.stored import Archived, Open, lose
from tests.support.store.sample import TENANT, grow


@pytest.fixture
async def made(begin: Open) -> Archived:
    return await begin(part_bytes=20)


async def away(made: Archived, root: str, *here: str, most: int = 10) -> AwayBranches:
    return await made.turns.away(TENANT, digits_of(root), [digits_of(id) for id in here], most)


async def test_each_branch_is_told_by_its_end_the_newest_first(made: Archived, redis: Redis, prefix: str) -> None:
    one, two, three = await grow(made.store, "one", "two", "three")
    (fork,) = await grow(made.store, "fork", parent=one)
    other, last = await grow(made.store, "other", "last", parent=two)
    await grow(made.store, "another tree")
    await made.archive_all()
    ends = [digits_of(id) for id in (last, fork, three)]
    await lose(redis, prefix)
    assert await away(made, one) == AwayBranches(ends, True)
    assert await away(made, one, one, two, three) == AwayBranches(ends[:2], True)
    assert await away(made, one, one, two, three, fork, other, last) == AwayBranches([], True)
    assert await away(made, one, most=2) == AwayBranches(ends[:2], False)


async def test_what_was_deleted_is_not_told_and_what_is_above_it_is(made: Archived) -> None:
    one, two, three = await grow(made.store, "one", "two", "three")
    forks = [(await grow(made.store, "fork", parent=one))[0] for _ in range(2)]
    await made.store.forget(TENANT, forks[0])
    await made.archive_all()
    assert await away(made, one, one) == AwayBranches([digits_of(forks[1]), digits_of(three)], True)
    await made.store.forget(TENANT, forks[1])  # which the archive doesn't know yet
    assert await away(made, one, one) == AwayBranches([digits_of(three)], True)
    await made.store.forget(TENANT, three)
    await made.archive_all()
    assert await away(made, one, one) == AwayBranches([digits_of(two)], True)


async def test_a_tree_that_was_never_archived_has_nothing_away(made: Archived) -> None:
    (id,) = await grow(made.store, "one")
    assert await away(made, id, id) == AwayBranches([], True)
