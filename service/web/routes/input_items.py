"""The items of stored turns, page by page: what a response was given before its own output, or all of a conversation.

Only the turns that a page touches are read. A page may begin after any item, as an item's id names its turn, and its
place there: that of one which was erased meanwhile, too.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from service.api import ids
from service.errors import ApiError
from service.responses.pictures import with_data_urls
from service.responses.references import omitted_items
from service.web.queries import ListPage, OrderedQuery, not_in_list
from store.errors import NotFound
from store.history.history import ConversationHistoryStore

TURNS_A_READ = 8

LIKELY_ITEMS = 3
"""The items expected of a turn until one was read: a question, a thought, and the answer."""

BYTES_A_READ = 1 << 20
"""How much a read of several turns may come to."""

MAX_PAGE_BYTES = 8 << 20
"""Where a page ends, however few items it has; the next one goes on behind it."""


class _Output(msgspec.Struct):
    output: list[msgspec.Raw] = []


class _Id(msgspec.Struct):
    id: str


_OUTPUT = msgspec.json.Decoder(_Output)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ID = msgspec.json.Decoder(_Id)


async def added_items(store: ConversationHistoryStore, tenant: str, turn: str) -> ListPage[msgspec.Raw] | None:
    """The items that are left of a turn by hand; None where it is deleted. Raises StoreUnavailable."""
    ((response, items),) = await store.items(tenant, [turn])
    if not response:
        return None
    return _page(await with_data_urls(store, tenant, turn, _ITEMS.decode(items)), more=False)


def _page(items: list[msgspec.Raw], *, more: bool) -> ListPage[msgspec.Raw]:
    first, last = (_ID.decode(items[at]).id if items else None for at in (0, -1))
    return ListPage(items, first, last, more)


async def page_of(
    store: ConversationHistoryStore,
    tenant: str,
    turns: Sequence[str],
    query: OrderedQuery,
    *,
    asked: str | None = None,
    remains: bool = False,
) -> ListPage[msgspec.Raw]:
    """The items of some turns, oldest first, that a query wants; of the turn that is `asked` for only its input. With
    `remains`, as for a conversation, those of deleted responses, too.

    Raises InvalidRequest where the query's `after` is an item of none of the turns.
    """
    limit, after, ascending = query.limit, query.after, query.order == "asc"
    omitted = await omitted_items(store, tenant, turns)
    if not ascending:
        turns = turns[::-1]
    found: list[msgspec.Raw] = []
    if after is not None:
        turn: Any = ids.response_of(after)
        if turn not in turns:
            raise not_in_list("item", after[:100])
        turns = turns[turns.index(turn) :]
    behind = None if after is None else _rank(after)
    """The place in the first of the turns behind which the page begins."""
    read, size, at_once = 0, 0, min(TURNS_A_READ, limit // LIKELY_ITEMS + 2)
    while read < len(turns):
        some = turns[read : read + at_once]
        told = await store.items(tenant, some, remains=remains, most_bytes=BYTES_A_READ)
        for turn, blobs in zip(some, told, strict=False):
            if sum(map(len, map(memoryview, found))) > MAX_PAGE_BYTES:
                break
            read += 1
            size += sum(map(len, blobs))
            items = _list(blobs, own=turn == asked, turn=turn)
            if behind is not None:
                items = [item for item in items if (_rank(_ID.decode(item).id) - behind) * (1 if ascending else -1) > 0]
                behind = None
            items = await with_data_urls(store, tenant, turn, items)
            found += [item for item in (items if ascending else reversed(items)) if _is_left(item, omitted)]
        if len(found) > limit or sum(map(len, map(memoryview, found))) > MAX_PAGE_BYTES:
            break
        at_once = _turns_needed(limit + 1 - len(found), len(found), read, size)
        await asyncio.sleep(0)
    page = _fitting(found[:limit])
    return _page(page, more=read < len(turns) or len(found) > len(page))


async def item_of(
    store: ConversationHistoryStore, tenant: str, turns: Sequence[str], id: str, *, also_omitted: bool = False
) -> msgspec.Raw:
    """The item of a conversation with these turns that has this id. Raises ApiError 404."""
    turn = ids.response_of(id)
    if turn is not None and turn in turns:
        (blobs,) = await store.items(tenant, [turn], remains=True)
        omitted = () if also_omitted else await omitted_items(store, tenant, turns)
        for item in _list(blobs, own=False):
            if _ID.decode(item).id == id and _is_left(item, omitted):
                return (await with_data_urls(store, tenant, turn, [item]))[0]
    raise ApiError(404, f"Item with id '{id[:100]}' not found.", param="item_id")


def _turns_needed(items: int, found: int, read: int, size: int) -> int:
    """How many turns likely have so many items, and fit into a read, by those that were read."""
    likely = -(-items * read // max(found, 1))
    return max(1, min(likely, BYTES_A_READ * read // max(size, 1), TURNS_A_READ))


def _fitting(items: list[msgspec.Raw]) -> list[msgspec.Raw]:
    size = 0
    for place, item in enumerate(items):
        size += len(memoryview(item))
        if place and size > MAX_PAGE_BYTES:
            return items[:place]
    return items


def _rank(id: str) -> int:
    """The place of an item in its turn, by the number with which its id ends: the output comes behind the input."""
    return int(id[-4:], 16) ^ ids.input_number(0)


def _is_left(item: msgspec.Raw, omitted: Collection[str]) -> bool:
    return not omitted or _ID.decode(item).id not in omitted


def _list(blobs: tuple[bytes, bytes], *, own: bool, turn: str = "") -> list[msgspec.Raw]:
    """A turn's input, and its output too where a later turn was given it. A deleted turn lists nothing, but for the one
    that is asked for, which was there a moment ago. Raises NotFound.
    """
    response, items = blobs
    if not response and own:
        raise NotFound(turn)
    if not response:
        return []
    given = _ITEMS.decode(items)
    return given if own else given + _OUTPUT.decode(response).output
