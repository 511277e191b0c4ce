"""Submitting: the plan of a create request with `background`, to a place in the queue.

Once it is accepted nothing of the process that accepted it is needed any more. The first two events are in the log by
then, so followers of the response begin with them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.metrics.counters import Metrics
from service.responses.output.journal import Batch, encode_batch
from service.responses.plan import Plan, encode, turn_of
from service.responses.prepare import Prepared
from service.responses.run import machine_of, unconfirmed
from service.responses.traced import planned
from service.spans import Headers, Kind
from service.tenants.limits import Reservation
from store.errors import NotFound, QueueFull, StoreUnconfirmed
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Priority
from store.turn import Turn

_PRIORITIES = {"priority": Priority.PRIORITY, "default": Priority.DEFAULT, "flex": Priority.FLEX}


class Submitted(NamedTuple):
    """A queued response as it stands then, and its first events."""

    response: Response
    events: list[Event]


class Accepted(NamedTuple):
    """The stored parts of a response from its acceptance on: its turn, its spec and the first entry of its log, which
    has the events.
    """

    turn: Turn
    spec: bytes
    entry: Entry
    events: list[Event]


async def accepted(plan: Plan, trace: Headers = ()) -> Accepted:
    """A planned response as it is queued; attempts at it are linked to its `trace`, where it has one."""
    if trace:
        plan = msgspec.structs.replace(plan, generation=msgspec.structs.replace(plan.generation, trace=trace))
    machine = machine_of(plan)
    events = machine.queued()
    turn = turn_of(plan, machine, msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED))
    return Accepted(turn, await encode(plan), Entry(events[-1].sequence_number, encode_batch(Batch(events))), events)


async def submit(
    jobs: Jobs,
    metrics: Metrics,
    tenant: str,
    prepared: Prepared,
    *,
    streams: bool,
    reserved: Reservation | None = None,
) -> Submitted:
    """Queue a planned response; its parent's pin goes with it, and what is `reserved` for it of limits. `streams` is
    how it was asked for. Raises StoreError.
    """
    if reserved is None:
        return await _traced(jobs, metrics, tenant, prepared, streams)
    plan = msgspec.structs.replace(prepared.plan, reserved=True)
    with reserved.handed_over(partial(is_there, jobs.history, tenant, plan.id)):
        return await _traced(jobs, metrics, tenant, msgspec.structs.replace(prepared, plan=plan), streams)


async def _traced(jobs: Jobs, metrics: Metrics, tenant: str, prepared: Prepared, streams: bool) -> Submitted:
    """See `submit`."""
    facts = planned(prepared.plan) if spans.current.get().kept else None
    with spans.current.get().child("submit", Kind.PRODUCER, facts) as span:
        return await _submit(jobs, metrics, tenant, prepared, await accepted(prepared.plan, span.headers), streams)


async def _submit(
    jobs: Jobs, metrics: Metrics, tenant: str, prepared: Prepared, made: Accepted, streams: bool
) -> Submitted:
    """See `submit`, of which `made` is the value to keep."""
    plan, (turn, spec, entry, events) = prepared.plan, made
    response = msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED)
    async with _held(jobs, prepared) as pin:
        try:
            await jobs.submit(
                tenant,
                turn,
                spec,
                entry,
                priority=_PRIORITIES[response.service_tier],
                streams=streams,
                fleeting=not plan.stored,
                steerable=bool(plan.settings),
                pin=pin,
                conversation=plan.conversation,
            )
        except StoreUnconfirmed as lack:  # it will be made all the same, and a repeat would make it twice
            response = unconfirmed(response, lack)
        except QueueFull:
            metrics.refused.labels("queue").inc()
            raise
    prepared.parent.released()
    metrics.jobs_submitted.inc()
    return Submitted(response, events)


async def is_there(store: ConversationHistoryStore, tenant: str, id: str) -> bool:
    """Whether a response was accepted. Raises StoreUnavailable."""
    try:
        await store.peek(tenant, id)
    except NotFound:
        return False
    return True


@asynccontextmanager
async def _held(jobs: Jobs, prepared: Prepared) -> AsyncGenerator[str | None]:
    """The name of the guard of a plan's history until it is queued: the pin of its parent, or the hold of its
    conversation. One that isn't added to its conversation needs no more than a name.
    """
    if prepared.joining is not None:
        async with prepared.joining.handing_over() as hold:
            yield hold
    else:
        yield prepared.parent.pin if prepared.plan.conversation is None else jobs.history.token()
