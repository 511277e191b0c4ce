"""Submitting: a response that was made for a worker, to a place in the queue.

Once it is accepted nothing of the process that accepted it is needed any more. The first two events are in the log by
then, so followers of the response begin with them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.responses.append import unconfirmed
from service.responses.drive import machine_of
from service.responses.make import Maker, Queued
from service.responses.output.journal import Batch, encode_batch
from service.responses.plan import Plan, encode, turn_of
from service.responses.prepare import Prepared
from service.responses.service import Service
from service.responses.traced import planned
from service.spans import Headers, Kind
from store.errors import QueueFull, StoreUnconfirmed
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


async def submit(maker: Maker, queued: Queued) -> Submitted:
    """Queue a response; its parent's pin goes with it, and what is reserved for it of limits. Raises StoreError."""
    span = spans.current.get()
    facts = planned(queued.prepared.plan) if span.kept else None
    with queued.handed_over(maker), span.child("submit", Kind.PRODUCER, facts) as producer:
        return await _submit(maker.service, maker.caller.tenant, queued.prepared, producer.headers)


async def _submit(service: Service, tenant: str, prepared: Prepared, trace: Headers) -> Submitted:
    plan = prepared.plan
    turn, spec, entry, events = await accepted(plan, trace)
    response = msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED)
    async with _held(service, prepared) as pin:
        try:
            await service.jobs.submit(
                tenant,
                turn,
                spec,
                entry,
                priority=_PRIORITIES[response.service_tier],
                streams=prepared.stream,
                fleeting=not plan.stored,
                steerable=bool(plan.settings),
                pin=pin,
                conversation=plan.conversation,
            )
        except StoreUnconfirmed as lack:  # it will be made all the same, and a repeat would make it twice
            response = unconfirmed(response, lack)
        except QueueFull:
            service.metrics.refused.labels("queue").inc()
            raise
    prepared.parent.released()
    service.metrics.jobs_submitted.inc()
    return Submitted(response, events)


@asynccontextmanager
async def _held(service: Service, prepared: Prepared) -> AsyncGenerator[str | None]:
    """The name of the guard of a plan's history until it is queued: the pin of its parent, or the hold of its
    conversation. One that isn't added to its conversation needs no more than a name.
    """
    if prepared.joining is not None:
        async with prepared.joining.handing_over() as hold:
            yield hold
    else:
        yield prepared.parent.pin if prepared.plan.conversation is None else service.store.token()
