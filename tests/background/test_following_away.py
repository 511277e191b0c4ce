"""Followers of a store that is away: who was told nothing is refused at once, and everybody else waits for it."""

import asyncio
from contextlib import aclosing

import pytest

from service.background.follow import AWAY_SECONDS, Following
from service.backoff import Backoff
from store.errors import StoreUnavailable
from tests.support.service.followed import ID, TENANT, Ether, World, events_of, following, numbers


async def test_a_store_that_is_away_at_first_is_said_at_once() -> None:
    world = World()
    world.away = 1
    with pytest.raises(StoreUnavailable):
        await numbers(following(world))
    assert world.asked == 1


async def test_whoever_has_the_first_events_is_handed_them_at_once_and_the_rest_when_the_store_is_back() -> None:
    world = World()
    said = events_of(9)
    world.write(said[:2])
    world.deaf = world.away = 5
    follower = following(world, begun=said[:2])
    async with aclosing(follower.events()) as batches:
        assert await anext(batches) == said[:2]
        assert (world.deaf, world.asked) == (5, 0)
        world.write(said[2:])
        assert [event async for batch in batches for event in batch] == said[2:]
    assert follower.over


async def test_a_store_that_stays_away_is_given_up() -> None:
    world, now = World(), [0.0]
    world.write(events_of(5, ended=False))
    follower = following(world, clock=lambda: now[0])
    async with aclosing(follower.events()) as batches:
        await anext(batches)
        world.away, asked = 1_000, world.asked

        def pass_time() -> None:
            now[0] += AWAY_SECONDS / 10

        world.turn = pass_time
        with pytest.raises(StoreUnavailable):
            await anext(batches)
    assert 10 <= world.asked - asked <= 12


async def test_one_that_waits_for_the_store_is_stopped_at_once() -> None:
    world = World()
    world.write(events_of(5, ended=False))
    follower = Following(world, Ether(world), TENANT, ID, backoff=Backoff(1e6, 1e6))
    async with aclosing(follower.events()) as batches:
        await anext(batches)
        world.away = 1_000
        waiting = asyncio.ensure_future(anext(batches))
        while world.away == 1_000:  # noqa: ASYNC110
            await asyncio.sleep(0)
        follower.stop()
        with pytest.raises(StoreUnavailable):
            await waiting
