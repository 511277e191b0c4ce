"""Pages of items over turns of any sizes: what they list, and how many turns are read for them."""

from collections.abc import Sequence
from itertools import chain
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from service.web.routes.input_items import BYTES_A_READ, TURNS_A_READ, page_of
from service.web.routing import OrderedQuery
from store.history.history import NOTHING_LISTED, ConversationHistoryStore


class Turns:
    """Turns in memory, of so many items in and out each; None was deleted. It notes what is read."""

    def __init__(self, turns: Sequence[tuple[int, int] | None], padding: int = 0) -> None:
        self.reads: list[int] = []
        self.ids = [f"resp_00{at:046x}" for at in range(len(turns))]
        self._padding = "x" * padding
        self._told = {id: self._turn(at, each) for at, (id, each) in enumerate(zip(self.ids, turns, strict=True))}

    async def items(
        self, tenant: str, ids: Sequence[str], *, remains: bool = False, most_bytes: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        told, size = list[tuple[bytes, bytes]](), 0
        for id in ids:
            size += sum(map(len, self._told[id]))
            if told and most_bytes is not None and size > most_bytes:
                break
            told.append(self._told[id])
        if ids:
            self.reads.append(len(told))
        return told

    def _turn(self, at: int, counts: tuple[int, int] | None) -> tuple[bytes, bytes]:
        if counts is None:
            return NOTHING_LISTED
        given, made = (
            [self._item(at, n) for n in numbers] for numbers in (range(counts[0]), range(100, 100 + counts[1]))
        )
        return msgspec.json.encode({"output": made}), msgspec.json.encode(given)

    def _item(self, at: int, number: int) -> dict[str, str]:
        return {"id": f"msg_00{at:046x}{number:04x}", "padding": self._padding}


async def pages(turns: Turns, limit: int, *, ascending: bool) -> list[list[str]]:
    """The ids of all items, page by page."""
    store, found, after = cast(ConversationHistoryStore, turns), list[list[str]](), None
    while True:
        page = await page_of(
            store,
            "t",
            turns.ids,
            OrderedQuery.model_construct(limit=limit, order="asc" if ascending else "desc", after=after),
        )
        found.append([msgspec.json.decode(item)["id"] for item in page.data])
        if not page.has_more:
            return found
        after = page.last_id


counts = some.one_of(some.none(), some.tuples(some.integers(0, 5), some.integers(0, 5)))


@given(
    turns=some.lists(counts, max_size=30),
    limit=some.integers(1, 12),
    ascending=some.booleans(),
    padding=some.sampled_from([0, 40_000]),
)
async def test_pages_list_each_item_once_in_its_order(
    turns: list[tuple[int, int] | None], limit: int, ascending: bool, padding: int
) -> None:
    stored = Turns(turns, padding)
    (whole,) = await pages(Turns(turns), 1000, ascending=True)
    found = await pages(stored, limit, ascending=ascending)
    assert list(chain(*found)) == (whole if ascending else whole[::-1])
    assert all(len(page) <= limit for page in found)
    assert max(stored.reads, default=0) <= TURNS_A_READ


@pytest.mark.parametrize(
    ("padding", "reads"),
    [(0, [TURNS_A_READ, 3]), (BYTES_A_READ // 7, [3, 3, 3, 2]), (BYTES_A_READ, [1] * 4)],
    ids=["small", "large", "as large as a page"],
)
async def test_a_page_reads_as_many_turns_as_it_likely_needs_and_as_fit(padding: int, reads: list[int]) -> None:
    turns = Turns([(1, 1)] * 50, padding)
    page = await page_of(cast(ConversationHistoryStore, turns), "t", turns.ids, OrderedQuery.model_construct(limit=20))
    assert page.has_more
    assert turns.reads == reads


async def test_a_page_of_few_items_reads_few_turns() -> None:
    turns = Turns([(1, 2)] * 50)
    for limit, reads in ((1, [2]), (2, [2]), (5, [3]), (100, [8, 8, 8, 8, 2])):
        turns.reads.clear()
        await page_of(cast(ConversationHistoryStore, turns), "t", turns.ids, OrderedQuery.model_construct(limit=limit))
        assert turns.reads == reads, limit
