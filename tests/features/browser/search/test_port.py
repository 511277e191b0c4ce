"""Places for searches and pages, some for each tenant and never all of them; and pages that were opened lately."""

import asyncio

import pytest

from service.features.browser.browser.page import Page, page_of
from service.features.browser.search.port import OWN_CHARS, KeptPages, OpenedPage, Places
from tests.support.waiting import until


class Crowd:
    """Those that want a place, and are in it until they are let go."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.inside: list[str] = []
        self.leave = asyncio.Event()

    async def come(self, tenant: str) -> None:
        async with self.places.holding(tenant):
            self.inside.append(tenant)
            await self.leave.wait()


async def test_nobody_takes_all_places() -> None:
    crowd = Crowd(Places(at_once=6, each=4))
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(crowd.come("greedy"))
        await until(lambda: len(crowd.inside) == 4, 5.0, "no places")
        group.create_task(crowd.come("other"))
        await until(lambda: "other" in crowd.inside, 5.0, "no place for another tenant")
        assert crowd.inside.count("greedy") == 4
        crowd.leave.set()

    assert crowd.inside.count("greedy") == 20


async def test_who_leaves_before_its_turn_takes_nothing_along() -> None:
    crowd = Crowd(Places(at_once=1, each=1))
    inside = asyncio.create_task(crowd.come("a"))
    await until(lambda: crowd.inside == ["a"], 5.0, "no place")
    for waiting in [asyncio.create_task(crowd.come(tenant)) for tenant in "ab"]:
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    crowd.leave.set()
    await inside
    await asyncio.wait_for(crowd.come("b"), 5.0)


def at(url: str, tenant: str = "one") -> OpenedPage:
    """A tenant that opened a page at an address."""
    return OpenedPage(tenant, (), url)


def page(text: str) -> Page:
    return page_of("https://tides.example/", "Tides", text)


def test_a_tenant_has_its_own_pages() -> None:
    kept = KeptPages()
    kept.put(at("u"), page("x"))

    assert kept.get(at("u")) == page("x")
    assert kept.get(at("u", "two")) is None
    assert kept.get(at("u")._replace(domains=("example",))) is None


def test_those_that_nobody_came_back_to_make_room() -> None:
    kept = KeptPages(chars=3 * (page("").size + OWN_CHARS) + 300)
    for url in "abc":
        kept.put(at(url), page("x" * 100))
    assert kept.get(at("a")) is not None
    kept.put(at("d"), page("x" * 100))

    assert [url for url in "abcd" if kept.get(at(url))] == ["a", "c", "d"]
    kept.put(at("a"), page("y"))
    assert kept.get(at("a")) == page("y")
    kept.put(at("huge"), page("x" * 10_000))
    assert kept.get(at("huge")) is None


async def test_there_are_no_more_places_than_that() -> None:
    crowd = Crowd(Places(at_once=3, each=2))
    async with asyncio.TaskGroup() as group:
        for tenant in "abcd":
            group.create_task(crowd.come(tenant))
        await until(lambda: len(crowd.inside) == 3, 5.0, "no places")
        crowd.leave.set()

    assert crowd.inside == ["a", "b", "c", "d"]
