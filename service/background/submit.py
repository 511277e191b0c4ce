"""Submitting: a response that was made for a worker, to a place in the queue.

Once it is accepted nothing of the process that accepted it is needed any more. The first two events are in the log by
then, so followers of the response begin with them.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Response, ResponseStatus
from service.responses.append import unconfirmed
from service.responses.make import Maker, Queued
from service.responses.output.journal import Batch, encode_batch
from service.responses.plan import Plan, encode, turn_of
from service.responses.prepare import Prepared
from service.responses.run import machine_of
from service.responses.service import Service
from service.responses.traced import planned
from service.spans import Headers, Kind
from store.errors import QueueFull, StoreUnconfirmed
from store.jobs.log import Entry
from store.jobs.model import Priority, Successor

_PRIORITIES = {"priority": Priority.PRIORITY, "default": Priority.DEFAULT, "flex": Priority.FLEX}


class Submitted(NamedTuple):
    """A queued response as it stands then, and its first events."""

    response: Response
    events: list[Event]


async def accepted(plan: Plan, trace: Headers = ()) -> tuple[Successor, list[Event]]:
    """The stored parts of a planned response as it is queued, and the events of its log; attempts at it are linked to
    its `trace`, where it has one.
    """
    if trace:
        plan = msgspec.structs.replace(plan, generation=msgspec.structs.replace(plan.generation, trace=trace))
    machine = machine_of(plan)
    events = machine.queued()
    turn = turn_of(plan, machine, msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED))
    entry = Entry(events[-1].sequence_number, encode_batch(Batch(events)))
    return Successor(turn, await encode(plan), entry), events


async def submit(maker: Maker, queued: Queued) -> Submitted:
    """Queue a response; its parent's pin goes with it, and what is reserved for it of limits. Raises StoreError."""
    service, prepared, span = maker.service, queued.prepared, spans.current.get()
    plan = prepared.plan
    response = msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED)
    async with AsyncExitStack() as stack:
        stack.enter_context(queued.handed_over(maker))
        facts = planned(plan) if span.kept else None
        producer = stack.enter_context(span.child("submit", Kind.PRODUCER, facts))
        made, events = await accepted(plan, producer.headers)
        pin = await stack.enter_async_context(_held(service, prepared))
        try:
            await service.jobs.submit(
                maker.caller.tenant,
                made.turn,
                made.spec,
                made.entry,
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
