"""Submitting: a create request with `background`, from its spec to a place in the queue.

    check ─▶ chain, pinned ─▶ prompt ─▶ spec ─▶ submit, unpinned

Once it is accepted nothing of the process that accepted it is needed any more. The first two events are in the log by
then, so whoever follows the response begins with them.
"""

from typing import NamedTuple

import msgspec

from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.responses.output.journal import Batch, encode_batch
from service.responses.plan import encode, machine_of
from service.responses.prepare import Creation
from service.responses.refusals import store_refusal
from service.responses.service import Service
from store.errors import QueueFull, StoreError
from store.jobs.log import Entry
from store.jobs.model import Priority
from store.turn import Status, Turn

_JSON = msgspec.json.Encoder()

_PRIORITIES = {"priority": Priority.PRIORITY, "default": Priority.DEFAULT, "flex": Priority.FLEX}


class Submitted(NamedTuple):
    """What was queued: the response as it stands then, and its first events."""

    response: Response
    events: list[Event]


async def submit(service: Service, tenant: str, creation: Creation) -> Submitted:
    """Queue a request. Raises ApiError; the parent is then let go of."""
    spec = await creation.spec()
    try:
        machine = machine_of(spec)
        events = machine.queued()
        response = msgspec.structs.replace(spec.response, status=ResponseStatus.QUEUED)
        turn = Turn(spec.id, spec.parent, Status.QUEUED, spec.messages, _JSON.encode(response), spec.items)
        await service.jobs.submit(
            tenant,
            turn,
            await encode(spec),
            Entry(events[-1].sequence_number, encode_batch(Batch(events))),
            priority=_PRIORITIES[creation.request.tier],
            streams=creation.request.stream,
            fleeting=not creation.request.store,
            pin=creation.pin,
        )
    except BaseException as error:
        await creation.release()
        if isinstance(error, QueueFull):
            service.metrics.refused.labels("queue").inc()
        if isinstance(error, StoreError):
            raise store_refusal(error) from error
        raise
    service.metrics.jobs_submitted.inc()
    return Submitted(response, events)
