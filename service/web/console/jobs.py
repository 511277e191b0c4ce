"""A key's background responses that wait or run."""

from typing import Annotated

import msgspec
from fastapi import Request
from pydantic import Field
from starlette.responses import Response as HttpResponse

from service.web.console.excerpts import Excerpt, excerpt_of
from service.web.console.shapes import US, ShownTurn, with_excerpt
from service.web.errors import JsonResponse
from service.web.plain import PlainRouter
from service.web.query import Query
from service.web.routes.received import exchange_of, service_of
from service.web.routes.stored import with_room
from store.history.listing import by_shard
from store.history.trees.jobs import UnderWay, under_way
from store.history.trees.turns import shown_of
from store.keys import name_of

router = PlainRouter()

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
