"""Conversations: made, shown, changed and deleted, and the items that they have, page by page.

Responses join a conversation where they are made (routes/create.py). The items listed here lead the next one.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.api.conversation import ConversationDeleted, read_added, read_changed, read_new
from service.responses import edit_conversation
from service.responses.conversation_hold import joining
from service.tenants.permissions import check_scope
from service.web.errors import JsonResponse
from service.web.plain import FILTER, PlainRouter, Query
from service.web.routes.conversation_list import page_of_conversations, read_filter
from service.web.routes.included import MAX_PAGE_ITEMS, Including, ItemsQuery, listed
from service.web.routes.input_items import Page, added, item_of, page_of
from service.web.routes.received import body_of, claim_of, exchange_of, noted, preparing, service_of
from service.web.routes.stored import with_room
from store.errors import ConversationNotFound
from store.keys import CONVERSATION_PREFIX, id_of
from store.keys import conversation_id as id_of_conversation

router = PlainRouter("Conversations")


class ListQuery(Query):
    """The query for a page of conversations."""

    also: ClassVar[frozenset[str]] = frozenset({FILTER})

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class EraseQuery(Query):
    """The query that says whether an item is erased."""

    erase: bool = False


@router.route("POST", "/conversations", summary="Create a conversation", operation_id="createConversation")
async def create(request: Request) -> HttpResponse:
    """A conversation, with `metadata`, and with up to 20 `items` in it; with `harmonium.fork_of` a fork."""
    service, exchange, body = service_of(request), exchange_of(request), await body_of(request)
    async with claim_of(request, body) as once:
        if once.made:
            return JsonResponse(await service.conversations.get(exchange.tenant, id_of_conversation(once.made)))
        async with preparing(request, len(body)):
            new = read_new(body)
            if new.fork_of is not None and not new.fork_of.startswith(CONVERSATION_PREFIX):
                check_scope(exchange.entry.scopes, "api.responses.read")
            made = await edit_conversation.begin(service, exchange.tenant, new, once.named)
    return JsonResponse(made)


@router.route("GET", "/conversations", summary="List conversations", operation_id="listConversations", query=ListQuery)
async def list_conversations(request: Request, query: ListQuery) -> HttpResponse:
    """All conversations, or those with `metadata[key]=value`, in the order in which they began, page by page."""
    wanted = read_filter(request.query_params.multi_items())
    page = await page_of_conversations(
        service_of(request).conversations,
        exchange_of(request).tenant,
        limit=query.limit,
        ascending=query.order == "asc",
        after=query.after,
        wanted=wanted,
    )
    return with_room(request, JsonResponse(page))


@router.route(
    "GET", "/conversations/{conversation_id}", summary="Retrieve a conversation", operation_id="retrieveConversation"
)
async def retrieve(request: Request, conversation_id: str) -> HttpResponse:
    """The conversation, without its items."""
    return JsonResponse(await service_of(request).conversations.get(exchange_of(request).tenant, conversation_id))


@router.route(
    "POST", "/conversations/{conversation_id}", summary="Update a conversation", operation_id="updateConversation"
)
async def update(request: Request, conversation_id: str) -> HttpResponse:
    """Give a conversation other `metadata` in the place of what it has."""
    service, exchange, body = service_of(request), exchange_of(request), await body_of(request)
    return JsonResponse(await edit_conversation.change(service, exchange.tenant, conversation_id, read_changed(body)))


@router.route(
    "DELETE", "/conversations/{conversation_id}", summary="Delete a conversation", operation_id="deleteConversation"
)
async def delete(request: Request, conversation_id: str) -> HttpResponse:
    """Delete a conversation. Its responses can still be retrieved and continued."""
    await service_of(request).conversations.delete(exchange_of(request).tenant, conversation_id)
    await noted(request, "conversation.deleted", conversation_id)
    return JsonResponse(ConversationDeleted(conversation_id))


@router.route(
    "POST",
    "/conversations/{conversation_id}/items",
    summary="Add items to a conversation",
    operation_id="createConversationItems",
    query=Including,
)
async def create_items(request: Request, query: Including, conversation_id: str) -> HttpResponse:
    """Add 1 to 20 `items`, which the next response is given; a list of them."""
    wanted = query.wanted
    service, exchange, body = service_of(request), exchange_of(request), await body_of(request)
    async with claim_of(request, body) as once:
        if once.made:
            await service.conversations.get(exchange.tenant, conversation_id)  # where it is deleted, so are its items
            page = await added(service.store, exchange.tenant, id_of(once.made))
            if page is None:
                raise ConversationNotFound(conversation_id)
        else:
            async with preparing(request, len(body)):
                sent = read_added(body)
                items = await edit_conversation.add_items(service, exchange.tenant, conversation_id, sent, once.named)
            data = [msgspec.Raw(msgspec.json.encode(item)) for item in items]
            page = Page(data, items[0].id, items[-1].id, has_more=False)
    page.data = await listed(request, page.data, wanted)
    return with_room(request, JsonResponse(page))


@router.route(
    "GET",
    "/conversations/{conversation_id}/items",
    summary="List the items of a conversation",
    operation_id="listConversationItems",
    query=ItemsQuery,
)
async def list_items(request: Request, query: ItemsQuery, conversation_id: str) -> HttpResponse:
    """All that was said in a conversation, page by page."""
    service, tenant, wanted = service_of(request), exchange_of(request).tenant, query.wanted
    turns = await service.conversations.lineage(tenant, conversation_id)
    page = await page_of(
        service.store,
        tenant,
        turns,
        remains=True,
        limit=query.limit,
        ascending=query.order == "asc",
        after=query.after,
    )
    page.data = await listed(request, page.data, wanted)
    return with_room(request, JsonResponse(page))


@router.route(
    "GET",
    "/conversations/{conversation_id}/items/{item_id}",
    summary="Retrieve an item of a conversation",
    operation_id="retrieveConversationItem",
    query=Including,
)
async def retrieve_item(request: Request, query: Including, conversation_id: str, item_id: str) -> HttpResponse:
    """One item."""
    service, tenant, wanted = service_of(request), exchange_of(request).tenant, query.wanted
    turns = await service.conversations.lineage(tenant, conversation_id)
    (item,) = await listed(request, [await item_of(service.store, tenant, turns, item_id)], wanted)
    return with_room(request, JsonResponse(item))


@router.route(
    "DELETE",
    "/conversations/{conversation_id}/items/{item_id}",
    summary="Delete an item of a conversation",
    operation_id="deleteConversationItem",
    query=EraseQuery,
)
async def delete_item(request: Request, query: EraseQuery, conversation_id: str, item_id: str) -> HttpResponse:
    """Delete an item: the next response is not given it. Responses that were keep it, but with `erase` it is gone for
    all, also where it was deleted before.
    """
    service, tenant = service_of(request), exchange_of(request).tenant
    async with joining(service, tenant, conversation_id) as joined:
        turns = await service.conversations.lineage(tenant, conversation_id)
        await item_of(service.store, tenant, turns, item_id, also_omitted=query.erase)
        if query.erase:
            await edit_conversation.erase_item(service, tenant, item_id)
        else:
            await edit_conversation.omit_item(service, joined, tenant, turns, item_id)
    await noted(request, "item.erased" if query.erase else "item.deleted", item_id, conversation=conversation_id)
    return JsonResponse(await service.conversations.get(tenant, conversation_id))
