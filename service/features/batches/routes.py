"""Batches over HTTP: had made, looked at and cancelled in any process. running.py works on them."""

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as InQuery
from starlette.responses import Response

from service.errors import ApiError, InvalidRequest, invalid_value, not_served
from service.features.batches.running import endpoints_of
from service.features.batches.shapes import (
    BATCHES,
    BatchRecord,
    BatchResource,
    all_of,
    decode_batch,
    encode_batch,
    no_batch,
    read_batch,
)
from service.features.files.inputs import files_of
from service.web.entering import Aside
from service.web.errors import JsonResponse
from service.web.queries import PageQuery, page_of
from service.web.received import Received
from store.errors import StoreFull
from store.history.records import TenantRecords

RETRY_SECONDS = 60
"""When a client may come back that has as many batches under way as it may."""

router = APIRouter(prefix="/v1", tags=["Batches"])


@router.post("/batches", summary="Create a batch", operation_id="createBatch")
async def create(request: Aside) -> Response:
    """Answer all requests of an uploaded file within the `completion_window`."""
    stored, service = _records(request), request.service
    id = stored.new_id(request.tenant)
    record = read_batch(await request.body(), id, request.exchange.entry.key, service.store.clock())
    endpoint, file_id, known = record.shown.endpoint, record.shown.input_file_id, endpoints_of(service)
    if endpoint not in known:
        raise invalid_value("endpoint", endpoint, f"Give one of {', '.join(known)}.")
    if not service.settings.store:
        raise not_served("endpoint", endpoint, "This service stores no responses, so it makes no batches.")
    file = await files_of(service).find(request.tenant, file_id)
    if file is None:
        message = f"No such File object: {file_id[:80]}. Upload it with the purpose 'batch' first."
        raise InvalidRequest(message, code="invalid_value", param="input_file_id")
    if file.purpose != "batch":
        raise invalid_value("input_file_id", file_id, "Its purpose is not 'batch'. Upload it again.")
    await _keep(stored, request.tenant, record)
    await request.note("batch.created", id)
    return JsonResponse(record.shown)


async def _keep(stored: TenantRecords, tenant: str, record: BatchRecord) -> None:
    """Store a new batch, in the place of the oldest that has ended where there are too many. Raises ApiError 429."""
    for _ in range(2):
        try:
            content, under_way = encode_batch(record)
            await stored.keep(tenant, record.shown.id, content, under_way=under_way)
            return
        except StoreFull:
            known = await all_of(stored, tenant)
            over = [each.shown.id for each in known if not each.under_way]
            if not over or len(known) - len(over) >= BATCHES.most_open:
                break
            await stored.drop(tenant, over[-1])
    told = f"{BATCHES.most_open} of your batches are running. Wait until one has ended, or cancel one."
    raise ApiError(429, told, type="rate_limit_error", code="batches_full", retry_after=RETRY_SECONDS)


@router.get("/batches", summary="List batches", operation_id="listBatches")
async def list_batches(request: Aside, query: Annotated[PageQuery, InQuery()]) -> Response:
    """All batches, newest first, page by page."""
    shown: list[BatchResource] = [each.shown for each in await all_of(_records(request), request.tenant)]
    return JsonResponse(page_of(shown, query, "batch"))


@router.get("/batches/{batch_id}", summary="Get a batch", operation_id="retrieveBatch")
async def retrieve(request: Aside, batch_id: str) -> Response:
    """The progress of a batch and, once it has ended, the files of its answers."""
    found = await _records(request).get(request.tenant, batch_id)
    if found is None:
        raise no_batch(batch_id)
    return JsonResponse(decode_batch(found).shown)


@router.post("/batches/{batch_id}/cancel", summary="Cancel a batch", operation_id="cancelBatch")
async def cancel(request: Aside, batch_id: str) -> Response:
    """Cancel all unanswered lines. The output keeps the answers so far."""
    now = request.service.store.clock()
    changed = await _records(request).change(
        request.tenant, batch_id, lambda before: encode_batch(decode_batch(before).cancel(now))
    )
    if changed is None:
        raise no_batch(batch_id)
    await request.note("batch.cancelled", batch_id)
    return JsonResponse(decode_batch(changed).shown)


def _records(request: Received) -> TenantRecords:
    return TenantRecords(request.service.store, BATCHES)
