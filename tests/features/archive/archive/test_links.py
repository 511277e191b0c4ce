"""Links that are slow, lose replies, are cut or stand still: nothing that was acknowledged is lost, and no call takes
longer than its deadline.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from store.archive.archive import Archive
from store.archive.port import Bounds
from store.errors import ArchiveUnavailable
from tests.support.archive.opened import REMOTE, Place, opened
from tests.support.archive.patience import PATIENT
from tests.support.store.link import Link, link
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("ground", REMOTE, indirect=True)

KEY = "v1/0a/default/00ff/0"
HASTY = Bounds(total_seconds=1.5, request_seconds=0.6, connect_seconds=0.4)
SLACK_SECONDS = 5.0
"""What a busy machine may add to a deadline."""


@pytest.fixture
async def between(place: Place) -> AsyncIterator[Link]:
    """The link to a place behind a server."""
    async with link(place.port) as made:
        yield made


async def add(archive: Archive, word: str) -> None:
    """Have a word among those of a value, as an archiver merges: a clash may be its own write."""
    for _ in range(200):
        found = await archive.get(KEY)
        words = set(found.value.decode().split()) if found else set[str]()
        if word in words:
            return
        merged = " ".join(sorted(words | {word})).encode()
        await archive.put(KEY, merged, only_if=found and found.etag)
    raise AssertionError(f"{word} could not be added")


async def test_lost_replies_lose_nothing(place: Place, between: Link) -> None:
    between.losses = 0.1
    words = [f"w{number}" for number in range(30)]
    waiting = iter(words)

    async def some() -> None:
        for word in waiting:
            while True:
                try:
                    await add(archive, word)
                    break
                except ArchiveUnavailable:  # three replies in a row
                    continue

    async with opened(place.through(between.port), PATIENT) as archive:
        await asyncio.gather(*(some() for _ in range(4)))
    assert between.lost
    async with opened(place) as direct:
        found = await direct.get(KEY)
        assert found
        assert found.value.decode().split() == sorted(words)


async def refused_in_time(archive: Archive) -> None:
    """Every verb is unavailable before its deadline."""
    calls = (archive.get(KEY), archive.put(KEY, b"x", only_if=None), archive.list("v1/"), archive.delete(KEY))
    begun = time.monotonic()
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert time.monotonic() - begun < HASTY.total_seconds + SLACK_SECONDS
    assert [type(each) for each in told] == [ArchiveUnavailable] * 4


@pytest.mark.parametrize("how", ["stands still", "refuses", "is too slow", "is cut"])
async def test_a_call_over_a_broken_link_ends_within_its_deadline(place: Place, between: Link, how: str) -> None:
    async with opened(place.through(between.port), HASTY) as archive:
        await until(lambda: archive.get(KEY), wanted=lambda _: True, passing=ArchiveUnavailable)
        match how:
            case "stands still":
                between.stands_still = True
            case "refuses":
                between.refuses = True
                between.cut()
            case "is cut":
                between.losses = 1.0
            case _:
                between.delay_seconds = 5.0
        await refused_in_time(archive)
        between.stands_still = between.refuses = False
        between.losses = between.delay_seconds = 0.0
        between.cut()
        await until(lambda: archive.list("v9/"), wanted=lambda _: True, passing=ArchiveUnavailable)
