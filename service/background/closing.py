"""Giving up a job that no worker can read: its response fails, and says so, with what the store itself holds of it.

What is wrong with such a job (its spec, or its log) has already ended attempt after attempt before a word of it was
known. Without this it would do so for ever, and whoever waits for it would never learn.
"""

import logging

import msgspec

from service import logs
from service.api.events import Error, Event, ResponseFailed
from service.api.response import ResponseError, ResponseStatus, decode_response
from service.responses.output.journal import Batch, encode_batch
from service.responses.service import Service
from store.jobs.log import Entry
from store.jobs.model import Job
from store.turn import Status, Turn

logger = logging.getLogger(__name__)

UNREADABLE = "No worker could read what was to be done. Send the request again."

_JSON = msgspec.json.Encoder()


async def give_up(service: Service, job: Job) -> None:
    """End a job without reading it. Raises LeaseLost, StoreError."""
    tenant, id = job.lease.tenant, job.lease.id
    accepted = decode_response((await service.store.look(tenant, id)).response)
    path = await service.store.lineage(tenant, id)
    cancelled = job.status is Status.CANCELLED
    response = msgspec.structs.replace(
        accepted,
        status=ResponseStatus.CANCELLED if cancelled else ResponseStatus.FAILED,
        error=None if cancelled else ResponseError("server_error", UNREADABLE),
    )
    events: list[Event] = [ResponseFailed(response=response)]
    if response.error is not None:
        events.insert(0, Error(code=response.error.code, message=response.error.message))
    for number, event in enumerate(events, job.last + 1):
        event.sequence_number = number
    turn = Turn(
        id=id,
        parent=path[-2] if len(path) > 1 else None,
        status=Status(response.status),
        messages=(),
        response=_JSON.encode(response),
        items=(await service.store.items(tenant, [id]))[0][1],
    )
    logs.event(logger, logging.ERROR, "a job can't be read, and is given up", response_id=id, tries=job.tries)
    announced = bool(service.settings.webhook_url)
    entry = Entry(events[-1].sequence_number, encode_batch(Batch(events)))
    await service.jobs.finish(job.lease, turn, entry, announced=announced)
