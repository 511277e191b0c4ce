"""Trees: a key's own, a page at a time, and the turns of one; and its background responses that wait or run."""

import asyncio
import re
from typing import Annotated, ClassVar, Literal

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.api.ids import response_of
from service.web.console.search import Box, Search, Wanted, read_cursor
from service.web.console.shapes import US, Archived, Excerpt, ShownTurn, WholeTree, excerpt_of, shown_turn, with_excerpt
from service.web.errors import JsonResponse
from service.web.plain import FILTER, PlainRouter, Query
from service.web.routes.conversation_list import read_filter
from service.web.routes.included import MAX_PAGE_ITEMS
from service.web.routes.received import exchange_of, service_of
from service.web.routes.stored import with_room
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat
from store.history.history import ConversationHistoryStore
from store.history.listing import by_shard
from store.history.tree_jobs import UnderWay, under_way
from store.history.tree_turns import TreeTurns, away_from, shown_of, turns_of
from store.keys import name_of

router = PlainRouter()

CUT_AT_ONCE = 50
"""How many excerpts are cut before others have their turn: a millisecond or two."""

MODEL_CHARS = 256

LATEST = 9_999_999_999
"""The last second that can be asked for, in 2286: a use has sixteen digits of microseconds."""

_CALL = re.compile(r"call_([0-9a-f]{48})[0-9a-f]{4}")

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Moment = Annotated[int, Field(ge=0, le=LATEST)]


class TreesQuery(Query):
    """The query for a page of trees; `metadata` is read beside it."""

    also: ClassVar[frozenset[str]] = frozenset({FILTER})

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] = 20
    after: str | None = None
    status: Status | None = None
    model: Annotated[str, Field(max_length=MODEL_CHARS)] | None = None
    since: Moment | None = None
    until: Moment | None = None


@router.route("GET", "/console/api/trees", query=TreesQuery)
async def list_trees(request: Request, query: TreesQuery) -> HttpResponse:
    """Trees, the one used last first; all, or those whose newest turn is as is asked for."""
    filters = read_filter(request.query_params.multi_items())
    wanted = Wanted(query.status, query.model, query.since, query.until, filters)
    place = None if query.after is None else read_cursor(query.after)
    service = service_of(request)
    search = Search(service.store, exchange_of(request).tenant, wanted, place, Box())
    page = msgspec.structs.replace(await search.page(query.limit), has_archive=service.archive is not None)
    return with_room(request, JsonResponse(page))


@router.route("GET", "/console/api/trees/{id}")
async def retrieve_tree(request: Request, id: str) -> HttpResponse:
    """The tree that has a response, an item, a call or a conversation, with all its turns."""
    store, tenant = service_of(request).store, exchange_of(request).tenant
    asked = named(id)
    tree = await turns_of(store, tenant, asked)
    excerpts = await excerpts_of(store, tenant, tree)
    readable = [node for node in tree.nodes if node.size and not node.is_conversation]
    answer = WholeTree(
        id=tree.id,
        asked=asked,
        last_used_at=tree.used // US,
        turns=[shown_turn(node, excerpts.get(node.digits)) for node in tree.nodes],
        turns_complete=tree.whole,
        excerpts_complete=len(excerpts) >= len(readable),
        archived=await archived_of(store, tenant, tree),
    )
    return with_room(request, JsonResponse(answer))


async def archived_of(store: ConversationHistoryStore, tenant: str, tree: TreeTurns) -> Archived | None:
    """What is in the archive alone of a tree; None where that doesn't say, as the rest can be shown all the same.

    Raises StoreUnavailable.
    """
    try:
        away = await away_from(store, tenant, tree)
    except (ArchiveUnavailable, ArchiveDamaged, NewerFormat):
        return None
    return Archived([name_of(end) for end in away.ends], away.whole)


def named(id: str) -> str:
    """The id of what an id is within: that of a response, for an item or a call of it."""
    call = _CALL.fullmatch(id)
    return f"resp_{call[1]}" if call else response_of(id) or id


async def excerpts_of(store: ConversationHistoryStore, tenant: str, tree: TreeTurns) -> dict[str, Excerpt]:
    """What is shown of the turns of a tree, by their digits, those used last first. Raises StoreUnavailable."""
    wanted = [node for node in tree.nodes if node.size and not node.is_conversation]
    wanted.sort(key=lambda node: -node.used)
    found: dict[str, Excerpt] = {}
    async for digits, response, items in shown_of(store, tenant, {node.digits: node.size for node in wanted}):
        found[digits] = excerpt_of(response, items)
        if len(found) % CUT_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


MOST_JOBS = 500
"""The most that are listed at once: some 10 ms."""


class Jobs(msgspec.Struct):
    """What is under way, the newest first; `has_more` where there is more than was asked for."""

    data: list[ShownTurn]
    has_more: bool
    object: str = "list"


class JobsQuery(Query):
    """How many are wanted."""

    limit: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 100


@router.route("GET", "/console/api/jobs", query=JobsQuery)
async def list_jobs(request: Request, query: JobsQuery) -> HttpResponse:
    """Background responses that wait or run, the newest first."""
    store, tenant = service_of(request).store, exchange_of(request).tenant
    found, whole = await under_way(store, tenant, query.limit)
    excerpts: dict[str, Excerpt] = {}
    sizes = {each.digits: each.size for each in found}
    for digits in by_shard(sizes):
        async for each, response, items in shown_of(store, tenant, {each: sizes[each] for each in digits}):
            excerpts[each] = excerpt_of(response, items)
    data = [with_excerpt(_shown(each), excerpts.get(each.digits)) for each in found]
    return with_room(request, JsonResponse(Jobs(data, not whole)))


def _shown(job: UnderWay) -> ShownTurn:
    above = None if job.parent is None else name_of(job.parent)
    return ShownTurn(job.id, "response", job.status, job.created // US, parent=above)
