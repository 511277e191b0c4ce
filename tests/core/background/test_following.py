"""Followers: whatever becomes of the channel and the store, each event comes once and in order, and the end is seen.

Of a store that is away, whoever was told nothing is refused at once, and everybody else waits for it.
"""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.background.follow import AWAY_SECONDS, BATCH_EVENTS, READ_ENTRIES, EndGone, LogGone
from store.errors import StoreUnavailable, StoreUnconfirmed
from store.jobs.log import GONE
from tests.support.service.followed import World, entry_of, events_of, following, numbers

FATES = ["said", "said", "said", "lost", "twice", "late", "early", "dropped", "away", "silence"]
"""What becomes of a batch's message: mostly what should."""


class Chance:
    """Writes a response, a batch or more at every turn, and does to its messages what was drawn."""

    def __init__(self, world: World, count: int, plan: list[list[tuple[int, str]]]) -> None:
        self._world = world
        self._events = events_of(count)
        self._plan = iter(plan)
        self._late: list[bytes] = []
        self.begun = False

    def turn(self) -> None:
        """Go on by one turn of the plan; when there is none, write all that is left and say nothing."""
        turn = next(self._plan, None)
        self._world.say(*self._late)
        self._late.clear()
        if turn is None:
            self._write(len(self._events), "lost")
        for size, fate in turn or ():
            self._write(size, fate)

    def _write(self, size: int, fate: str) -> None:
        batch, self._events = self._events[:size], self._events[size:]
        if fate == "away" and self.begun:
            self._world.away += 2
        if not batch:
            return
        message = self._world.write(batch, says={"said": 1, "away": 1, "twice": 2}.get(fate, 0))
        if fate == "late":
            self._late.append(message)
        elif fate == "early" and self._world.said is not None:
            self._world.said.insert(0, message)
        elif fate == "dropped":
            self._world.said = None


@settings(deadline=None)
@given(
    st.integers(2, 40),
    st.lists(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(FATES)), max_size=4), max_size=20),
    st.data(),
)
async def test_each_event_comes_once_and_in_order(
    count: int, plan: list[list[tuple[int, str]]], data: st.DataObject
) -> None:
    after = data.draw(st.integers(-1, count - 1))
    world = World()
    chance = Chance(world, count, [[(1, "said")], *plan])
    world.turn = chance.turn
    follower = following(world, after)
    found: list[int] = []
    async with aclosing(follower.events()) as batches:
        async for batch in batches:
            chance.begun = True
            found += [event.sequence_number for event in batch]
    assert found == list(range(after + 1, count))
    assert follower.over
    assert not world.listening


@pytest.mark.parametrize("said", [True, False], ids=["said", "read"])
async def test_entries_with_many_events_are_handed_on_a_few_at_a_time(said: bool) -> None:
    world, size = World(), BATCH_EVENTS // 3
    events = events_of(1 + READ_ENTRIES * size)
    world.write(events[:1], says=0)
    sizes: list[int] = []
    async with aclosing(following(world).events()) as batches:
        assert len(await anext(batches)) == 1
        for at in range(1, len(events), size):
            world.write(events[at : at + size], says=int(said))
        found = [event async for batch in batches for event in batch if sizes.append(len(batch)) is None]
    assert [event.sequence_number for event in found] == list(range(1, len(events)))
    assert max(sizes) <= BATCH_EVENTS
    assert world.read_entries <= 1 + READ_ENTRIES + 2 * READ_ENTRIES  # not all of the rest for each batch


@pytest.mark.parametrize("after", [4, 1000])
async def test_who_has_seen_the_end_is_told_that_it_is_over(after: int) -> None:
    world = World()
    world.write(events_of(5))
    follower = following(world, after)
    assert [batch async for batch in follower.events()] == [[]]
    assert follower.over
    assert not world.silences


@pytest.mark.parametrize("ends_at", [10, 20])
async def test_an_end_that_is_not_behind_what_was_handed_over_is_none(ends_at: int) -> None:
    """A server that failed over may have lost what it had said, and the response has ended otherwise."""
    world = World()
    world.write(events_of(20, ended=False))
    follower = following(world)
    async with aclosing(follower.events()) as batches:
        assert len(await anext(batches)) == 20
        world.entries, world.said = [entry_of(events_of(ends_at))], []
        with pytest.raises(EndGone):
            await anext(batches)
    assert not follower.over


@pytest.mark.parametrize(("said", "silences"), [([], 1), ([GONE], 0)], ids=["silently", "and says so"])
async def test_a_log_that_goes_ends_the_following(said: list[bytes], silences: int) -> None:
    world = World()
    world.write(events_of(5, ended=False))
    follower = following(world)
    async with aclosing(follower.events()) as batches:
        assert len(await anext(batches)) == 5
        world.entries, world.said = None, said
        with pytest.raises(LogGone):
            await anext(batches)
    assert not follower.over
    assert world.silences == silences


async def test_a_log_with_a_hole_is_followed_up_to_it() -> None:
    world = World()
    said = events_of(9)
    world.write(said[:3], says=0)
    world.write(said[5:], says=0)
    async with aclosing(following(world).events()) as batches:
        assert await anext(batches) == said[:3]
        with pytest.raises(LogGone):
            await anext(batches)


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


async def test_an_end_that_is_not_confirmed_in_time_is_told_all_the_same() -> None:
    async def settled() -> None:
        raise StoreUnconfirmed("a replica is away")

    world = World()
    world.write(events_of(5))
    follower = following(world)
    follower.settled = settled
    assert await numbers(follower) == [0, 1, 2, 3, 4]


async def test_silence_is_the_end_for_who_follows_in_a_process_that_is_about_to_end() -> None:
    world = World()
    world.write(events_of(5, ended=False))
    follower = following(world)
    follower.leaving = lambda: True
    async with asyncio.timeout(5):
        assert await numbers(follower) == [0, 1, 2, 3, 4]


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
