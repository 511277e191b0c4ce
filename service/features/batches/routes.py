"""Batches over HTTP. door.py knows what a batch is; here it is put on the wire."""

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from starlette.responses import Response

from service.features.batches.door import BatchDoor
from service.features.batches.shapes import resource_of
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import ListPage, PageQuery, not_in_list
from service.web.received import Received

router = APIRouter(prefix="/v1", tags=["Batches"])


def _door_of(request: Received) -> BatchDoor:
    return request.exchange.scope["app"].state.batches


@router.post("/batches", summary="Create a batch", operation_id="createBatch")
async def create(request: Aside) -> Response:
    """Have all requests of an uploaded file answered within its `completion_window`."""
    id, record = await _door_of(request).create(request.tenant, request.exchange.entry.key, await request.body())
    await request.note("batch.created", id)
    return JsonResponse(resource_of(id, record))


@router.get("/batches", summary="List batches", operation_id="listBatches")
async def list_batches(request: Aside, query: Annotated[PageQuery, InQuery()]) -> Response:
    """All batches, newest first, page by page."""
    shown = [resource_of(*each) for each in await _door_of(request).all(request.tenant)]
    ids = [each.id for each in shown]
    if query.after is not None and query.after not in ids:
        raise not_in_list("batch", query.after)
    start = 0 if query.after is None else ids.index(query.after) + 1
    page = shown[start : start + query.limit]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return JsonResponse(ListPage(page, first, last, has_more=start + len(page) < len(shown)))


@router.get("/batches/{batch_id}", summary="Get a batch", operation_id="retrieveBatch")
async def retrieve(request: Aside, batch_id: str) -> Response:
    """How far a batch is, and the files of its answers once it has ended."""
    return JsonResponse(resource_of(batch_id, await _door_of(request).find(request.tenant, batch_id)))


@router.post("/batches/{batch_id}/cancel", summary="Cancel a batch", operation_id="cancelBatch")
async def cancel(request: Aside, batch_id: str) -> Response:
    """Make no more of its lines. The answers that there are by then are in its output."""
    record = await _door_of(request).cancel(request.tenant, batch_id)
    await request.note("batch.cancelled", batch_id)
    return JsonResponse(resource_of(batch_id, record))
