"""Conversations: made, shown, changed and deleted, and the items that they have, page by page.

Responses join a conversation where they are made (routes/create.py). The items listed here lead the next one.
"""

import re
from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec
from fastapi import APIRouter
from fastapi import Query as InQuery
from starlette.responses import Response

from service.api import ids
from service.api.conversation import ConversationDeleted, decode_conversation, read_added, read_changed, read_new
from service.api.request import MAX_METADATA_PAIRS, check_pair
from service.errors import brief, invalid_value
from service.responses import edit_conversation
from service.responses.conversation_hold import joining
from service.responses.pictures import with_data_urls
from service.stability import EXPERIMENTAL
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import FILTER, ListPage, OrderedQuery, Query, not_in_list
from service.web.routes.included import Including, ItemsQuery, answer_page, items_shown
from service.web.routes.input_items import added_items, item_of, page_of
from store.errors import ConversationNotFound
from store.history.conversations import Conversations
from store.keys import CONVERSATION_PREFIX, id_of
from store.keys import conversation_id as id_of_conversation

router = APIRouter(prefix="/v1", tags=["Conversations"])


class ListQuery(OrderedQuery):
    """The query for a page of conversations."""

    also: ClassVar[frozenset[str]] = frozenset({FILTER})


class EraseQuery(Query):
    """The query that says whether an item is erased."""

    erase: bool = False


@router.post("/conversations", summary="Create a conversation", operation_id="createConversation")
async def create(request: Aside) -> Response:
    """A conversation, with `metadata`, and with up to 20 `items` in it; with `harmonium.fork_of` a fork."""
    service, exchange, body = request.service, request.exchange, await request.body()
    async with request.claim(body) as once:
        if once.made:
            return JsonResponse(await service.conversations.get(exchange.tenant, id_of_conversation(once.made)))
        async with request.preparing(len(body)):
            new = read_new(body)
            if new.fork_of is not None and not new.fork_of.startswith(CONVERSATION_PREFIX):
                exchange.entry.require("api.responses.read")
            made = await edit_conversation.begin(service, exchange.caller, new, once.name, tell=exchange.left_out)
    return JsonResponse(made)


@router.get(
    "/conversations", summary="List conversations", operation_id="listConversations", openapi_extra=EXPERIMENTAL
)
async def list_conversations(request: Aside, query: Annotated[ListQuery, InQuery()]) -> Response:
    """All conversations, or those with `metadata[key]=value`, in the order in which they began, page by page."""
    wanted = read_filter(request.parameters.multi_items())
    page = await page_of_conversations(request.service.conversations, request.tenant, query, wanted)
    return request.with_room(page)


@router.get("/conversations/{conversation_id}", summary="Retrieve a conversation", operation_id="retrieveConversation")
async def retrieve(request: Aside, conversation_id: str) -> Response:
    """The conversation, without its items."""
    return JsonResponse(await request.service.conversations.get(request.tenant, conversation_id))


@router.post("/conversations/{conversation_id}", summary="Update a conversation", operation_id="updateConversation")
async def update(request: Aside, conversation_id: str) -> Response:
    """Replace the `metadata` of a conversation."""
    conversations, metadata = request.service.conversations, read_changed(await request.body())
    return JsonResponse(await edit_conversation.change(conversations, request.tenant, conversation_id, metadata))


@router.delete("/conversations/{conversation_id}", summary="Delete a conversation", operation_id="deleteConversation")
async def delete(request: Aside, conversation_id: str) -> Response:
    """Delete a conversation. Its responses can still be retrieved and continued."""
    await request.service.conversations.delete(request.tenant, conversation_id)
    await request.note("conversation.deleted", conversation_id)
    return JsonResponse(ConversationDeleted(conversation_id))


@router.post(
    "/conversations/{conversation_id}/items",
    summary="Add items to a conversation",
    operation_id="createConversationItems",
)
async def create_items(request: Aside, query: Annotated[Including, InQuery()], conversation_id: str) -> Response:
    """Add 1 to 20 `items`, which the next response reads; returns them."""
    wanted = query.wanted
    service, exchange, body = request.service, request.exchange, await request.body()
    async with request.claim(body) as once:
        if once.made:
            await service.conversations.get(exchange.tenant, conversation_id)  # where it is deleted, so are its items
            page = await added_items(service.store, exchange.tenant, id_of(once.made))
            if page is None:
                raise ConversationNotFound(conversation_id)
        else:
            async with request.preparing(len(body)):
                sent = read_added(body)
                items = await edit_conversation.add_items(
                    service, exchange.caller, conversation_id, sent, once.name, tell=exchange.left_out
                )
            listed, turn = [msgspec.Raw(msgspec.json.encode(item)) for item in items], ids.response_of(items[0].id)
            data = await with_data_urls(service.store, exchange.tenant, turn or "", listed)
            page = ListPage(data, items[0].id, items[-1].id, has_more=False)
    return await answer_page(request, page, wanted)


@router.get(
    "/conversations/{conversation_id}/items",
    summary="List the items of a conversation",
    operation_id="listConversationItems",
)
async def list_items(request: Aside, query: Annotated[ItemsQuery, InQuery()], conversation_id: str) -> Response:
    """All items of a conversation, page by page."""
    service, tenant, wanted = request.service, request.tenant, query.wanted
    turns = await service.conversations.lineage(tenant, conversation_id)
    return await answer_page(request, await page_of(service.store, tenant, turns, query, remains=True), wanted)


@router.get(
    "/conversations/{conversation_id}/items/{item_id}",
    summary="Retrieve an item of a conversation",
    operation_id="retrieveConversationItem",
)
async def retrieve_item(
    request: Aside, query: Annotated[Including, InQuery()], conversation_id: str, item_id: str
) -> Response:
    """One item."""
    service, tenant, wanted = request.service, request.tenant, query.wanted
    turns = await service.conversations.lineage(tenant, conversation_id)
    (item,) = await items_shown(request, [await item_of(service.store, tenant, turns, item_id)], wanted)
    return request.with_room(item)


@router.delete(
    "/conversations/{conversation_id}/items/{item_id}",
    summary="Delete an item of a conversation",
    operation_id="deleteConversationItem",
)
async def delete_item(
    request: Aside, query: Annotated[EraseQuery, InQuery()], conversation_id: str, item_id: str
) -> Response:
    """Delete an item: later responses don't read it. Earlier responses keep it, except with `erase`, which also
    erases an item that was deleted before.
    """
    service, tenant = request.service, request.tenant
    async with joining(service, tenant, conversation_id) as joined:
        turns = await service.conversations.lineage(tenant, conversation_id)
        await item_of(service.store, tenant, turns, item_id, also_omitted=query.erase)
        if query.erase:
            await edit_conversation.erase_item(service.store, tenant, item_id)
        else:
            await edit_conversation.omit_item(service.conversations, joined, tenant, turns, item_id)
    await request.note("item.erased" if query.erase else "item.deleted", item_id, conversation=conversation_id)
    return JsonResponse(await service.conversations.get(tenant, conversation_id))


# --- the list ---

MAX_LOOKED_AT = 2_000
"""The most conversations that one request looks at: some 30 ms, of which no other request waits for more than two."""

MAX_LOOKED_AT_BYTES = 4 << 20
"""The most bytes of those conversations; metadata may have 37 KB."""

AT_ONCE = 100
_FILTER = re.compile(r"metadata\[(.*)\]", re.DOTALL)

Filter = dict[str, str]
"""The pairs that a conversation must have in its metadata; all of them."""


def read_filter(parameters: Iterable[tuple[str, str]]) -> Filter:
    """The filter that a query asks for, written as metadata[key]=value. Raises InvalidRequest."""
    wanted: Filter = {}
    for name, value in parameters:
        if not name.startswith("metadata"):
            continue
        match = _FILTER.fullmatch(name)
        if match is None:
            raise invalid_value("metadata", f"{name}={value}", "Send metadata[key]=value.")
        if match[1] in wanted:
            raise invalid_value("metadata", match[1], "Send each key once: a conversation has one value for it.")
        check_pair(match[1], value)
        wanted[match[1]] = value
    if len(wanted) > MAX_METADATA_PAIRS:
        raise invalid_value("metadata", len(wanted), f"At most {MAX_METADATA_PAIRS} pairs are allowed.")
    return wanted


async def page_of_conversations(
    conversations: Conversations, tenant: str, query: OrderedQuery, wanted: Filter
) -> ListPage[msgspec.Raw]:
    """The conversations that a query asks for, and that have all that is wanted. Metadata is looked at one conversation
    after the other, so a page of a filter ends after so many of them, wherever it is by then, and says that there may
    be more. Never go on to the end for one that matches: a tenant may have a million.

    `last_id` is where the next page goes on: behind the last of them, or of those that were looked at in vain. Raises
    InvalidRequest for an `after` that is no conversation, StoreUnavailable.
    """
    limit = query.limit
    listing = conversations.listing(tenant, after=query.after, ascending=query.order == "asc")
    found: list[tuple[str, bytes]] = []
    looked_at, size, last = 0, 0, None
    while looked_at < MAX_LOOKED_AT and size < MAX_LOOKED_AT_BYTES:
        try:
            some = await listing.some(AT_ONCE if wanted else limit + 1 - len(found))
        except ConversationNotFound as error:
            raise not_in_list("conversation", brief(error.id)) from None
        for id, json in some:
            size += len(json or b"")
            if json is not None and (not wanted or wanted.items() <= decode_conversation(json).metadata.items()):
                found.append((id, json))
            if len(found) > limit:
                return _page(found[:limit], found[limit - 1][0], more=True)
            last = id
        looked_at += len(some)
        if not some:
            return _page(found, found[-1][0] if found else None, more=False)
    return _page(found, last, more=True)


def _page(found: list[tuple[str, bytes]], last_id: str | None, *, more: bool) -> ListPage[msgspec.Raw]:
    return ListPage([msgspec.Raw(json) for _, json in found], found[0][0] if found else None, last_id, more)
