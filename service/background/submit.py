"""Submitting: the plan of a create request with `background`, to a place in the queue.

Once it is accepted nothing of the process that accepted it is needed any more. The first two events are in the log by
then, so whoever follows the response begins with them.
"""

from typing import NamedTuple

import msgspec

from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.metrics.counters import Metrics
from service.responses.output.journal import Batch, encode_batch
from service.responses.plan import encode, turn_of
from service.responses.prepare import Prepared
from service.responses.run import machine_of
from store.errors import QueueFull
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Priority

_PRIORITIES = {"priority": Priority.PRIORITY, "default": Priority.DEFAULT, "flex": Priority.FLEX}


class Submitted(NamedTuple):
    """What was queued: the response as it stands then, and its first events."""

    response: Response
    events: list[Event]


async def submit(jobs: Jobs, metrics: Metrics, tenant: str, prepared: Prepared, *, streams: bool) -> Submitted:
    """Queue a planned response; its parent's pin goes with it. `streams` is how it was asked for. Raises StoreError."""
    plan = prepared.plan
    machine = machine_of(plan)
    events = machine.queued()
    response = msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED)
    try:
        await jobs.submit(
            tenant,
            turn_of(plan, machine, response),
            await encode(plan),
            Entry(events[-1].sequence_number, encode_batch(Batch(events))),
            priority=_PRIORITIES[response.service_tier],
            streams=streams,
            fleeting=not plan.stored,
            pin=prepared.parent.pin,
        )
    except QueueFull:
        metrics.refused.labels("queue").inc()
        raise
    prepared.parent.released()
    metrics.jobs_submitted.inc()
    return Submitted(response, events)
