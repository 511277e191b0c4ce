"""The tally: what isn't stored is counted, in an outage of the store once that is over, and in bounds."""

import logging

import pytest

from service.features.tenants import usage
from service.features.tenants.usage import WAIT_SECONDS, Tally
from store.errors import StoreUnavailable
from store.spending import Spending
from store.turn import Expense

SPENT = Expense("", "m", 5, 0, 1)


class Outage(Spending):
    """A store that may be away."""

    def __init__(self) -> None:
        self.counted: list[str] = []
        self.away = False

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        """Count it, unless this is away."""
        if self.away:
            raise StoreUnavailable("away")
        self.counted.append(id)


@pytest.fixture
def store() -> Outage:
    return Outage()


async def test_what_the_store_misses_is_counted_once_that_is_back(store: Outage) -> None:
    known = Tally(store, lambda: False)
    store.away = True
    for id in ("one", "two"):
        await known.count("acme", id, SPENT)
    await known.settle()
    assert store.counted == []
    store.away = False
    await known.settle()
    await known.settle()
    assert store.counted == ["one", "two"]


async def test_ten_of_those_that_wait_are_counted_beside_the_next_answer(store: Outage) -> None:
    known, waiting = Tally(store, lambda: False), [str(number) for number in range(12)]
    store.away = True
    for id in waiting:
        await known.count("acme", id, SPENT)
    store.away = False
    await known.count("acme", "next", SPENT)
    assert store.counted == ["next", *waiting[:10]]


async def test_only_so_many_wait_and_not_for_ever(
    store: Outage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_WAITING", 2)
    now = 0.0
    known = Tally(store, lambda: store.away, lambda: now)
    store.away = True
    with caplog.at_level(logging.WARNING):
        for id in ("one", "two", "three"):
            await known.count("acme", id, SPENT)
            now += 0.6 * WAIT_SECONDS
        store.away = False
        await known.settle()
    assert store.counted == ["three"]
    assert [record.message for record in caplog.records] == ["usage is not counted"] * 2
