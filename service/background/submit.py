"""Submitting: a response that was made for a worker, to a place in the queue; and the successor of a steered one.

Once a response is accepted nothing of the process that accepted it is needed any more. The first two events are in the
log by then, so followers of the response begin with them. When it ends, its steers are applied to a successor, or given
back:

    steers ─┬─▶ applied: the input of a response that goes on from it, which the script that ends the one accepts
            └─▶ given back: in events before the terminal one, and in the response itself

The successor has the settings of the request for the first one, which its plan keeps, and the conversation as it stands
with the end that is about to be stored. Never end a response in one write and begin the next in another.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from service import spans
from service.api.events import Event, SteerFailed
from service.api.response import Extensions, GivenBack, Response, ResponseStatus, SteerError, SteerShown
from service.api.steer import NotSteered, messages_in, required_input, successor_request
from service.engine.port import EngineError
from service.entrance import Entrance, Entry, Reservation
from service.errors import ApiError
from service.responses.append import mark_unconfirmed
from service.responses.drive import machine_of
from service.responses.make import Maker, Queued, make
from service.responses.output.journal import Batch, encode_batch
from service.responses.output.machine import Machine
from service.responses.parent import Parent
from service.responses.plan import Plan, encode, messages_of, turn_of
from service.responses.prepare import Prepared
from service.responses.refusals import refusal_of
from service.responses.service import Caller, Service
from service.spans import Headers, SpanSide
from service.store_away import retry
from store.errors import QueueFull, StoreError, StoreUnavailable, StoreUnconfirmed
from store.history.history import ConversationHistoryStore
from store.jobs.log import LogEntry
from store.jobs.model import Priority, Steer, Successor

_PRIORITIES = {"priority": Priority.PRIORITY, "default": Priority.DEFAULT, "flex": Priority.FLEX}
WINDOWS = {"2h": Priority.WITHIN_2H, "8h": Priority.WITHIN_8H}


class Submitted(NamedTuple):
    """A queued response as it stands then, and its first events."""

    response: Response
    events: list[Event]


async def queued_parts(plan: Plan, trace: Headers = ()) -> tuple[Successor, list[Event]]:
    """The stored parts of a planned response as it is queued, and the events of its log; attempts at it are linked to
    its `trace`, where it has one.
    """
    if trace:
        plan = msgspec.structs.replace(plan, generation=msgspec.structs.replace(plan.generation, trace=trace))
    machine = machine_of(plan)
    events = machine.queue()
    turn = turn_of(plan, machine, msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED))
    entry = LogEntry(events[-1].sequence_number, encode_batch(Batch(events)))
    return Successor(turn, await encode(plan), entry), events


async def submit(maker: Maker, queued: Queued, *, waits: bool = True) -> Submitted:
    """Queue a response; its parent's pin goes with it, and what is reserved for it of limits. One that doesn't wait
    for others of its tenant, as somebody looks on, is before them at its priority. Raises StoreError.
    """
    service, prepared, span = maker.service, queued.prepared, spans.current.get()
    plan = prepared.plan
    response = msgspec.structs.replace(plan.base, status=ResponseStatus.QUEUED)
    priority = WINDOWS.get(prepared.window) or _PRIORITIES[response.service_tier]
    group = f"{priority} {plan.generation.model} {prepared.group}"
    async with AsyncExitStack() as stack:
        stack.enter_context(queued.handed_over(maker))
        facts = plan.facts if span.kept else None
        producer = stack.enter_context(span.child("submit", SpanSide.PRODUCER, facts))
        made, events = await queued_parts(plan, producer.headers)
        pin = await stack.enter_async_context(_guard_history(service.store, prepared))
        try:
            await service.jobs.submit(
                maker.caller.tenant,
                made.turn,
                made.spec,
                made.entry,
                priority=priority,
                streams=prepared.stream,
                fleeting=not plan.stored,
                steerable=bool(plan.settings),
                pin=pin,
                conversation=plan.conversation,
                group=blake2b(group.encode(), digest_size=16).hexdigest() if prepared.group else "",
                hurries=not waits,
            )
        except StoreUnconfirmed as lack:  # it will be made all the same, and a repeat would make it twice
            response = mark_unconfirmed(response, lack)
        except QueueFull:
            service.metrics.refused.labels("queue").inc()
            raise
        prepared.parent.released()
        service.metrics.jobs_submitted.inc()
    return Submitted(response, events)


@asynccontextmanager
async def _guard_history(store: ConversationHistoryStore, prepared: Prepared) -> AsyncGenerator[str | None]:
    """The name of the guard of a plan's history until it is queued: the pin of its parent, or the hold of its
    conversation. One that isn't added to its conversation needs no more than a name.
    """
    if prepared.joining is not None:
        async with prepared.joining.handing_over() as hold:
            yield hold
    else:
        yield prepared.parent.pin if prepared.plan.conversation is None else store.token()


@asynccontextmanager
async def succeed(
    service: Service,
    tenant: str,
    plan: Plan,
    machine: Machine,
    response: Response,
    steers: Sequence[Steer],
    patience: float,
) -> AsyncGenerator[Successor]:
    """The response that goes on from one with its steers. It is stored in the block, or nothing is reserved for it of
    limits any more. The store may be away for `patience` seconds. Raises NotSteered where none can go on, and
    StoreUnavailable.
    """
    _refuse(plan, response)
    said = [message for steer in steers for message in messages_in(msgspec.Raw(steer.said))]
    async with AsyncExitStack() as resources:
        try:
            above = await retry(partial(service.store.chain, tenant, plan.id, above=True), patience)
            chain = above.then(plan.id, messages_of(plan, machine))
            service.store.refuse_long(chain)
            entrance, asked = service.tenants.entrance, plan.generation
            entry = await entrance.returning(tenant, plan.key)
            caller = Caller(entry, asked.trace, session=asked.affinity)
            maker = Maker(service, caller, partial(reserve, entrance, entry, succeeds=True), parent=Parent(chain))
            made = await make(maker, partial(successor_request, plan.settings, plan.id, said), resources)
        except msgspec.DecodeError as error:
            why = "Another release stored its settings, and this one can't read them."
            raise NotSteered("successor_creation_failed", why) from error
        except StoreUnavailable:
            raise
        except (ApiError, EngineError, StoreError) as error:
            raise NotSteered("successor_creation_failed", refusal_of(error).message) from error
        assert isinstance(made, Queued)  # the settings of a background response are kept alone
        successor, _ = await queued_parts(made.prepared.plan, spans.current.get().headers)
        with made.handed_over(maker):
            yield successor


async def reserve(
    entrance: Entrance,
    entry: Entry,
    resources: AsyncExitStack,
    model: str,
    id: str,
    *,
    reads: int,
    writes: int,
    succeeds: bool = False,
) -> Reservation | None:
    """The reservation of a response without a request, from the limits of its project and of the key that it was asked
    for with, as they are now. One that `succeeds` another takes its place. Raises ApiError 429, StoreUnavailable.
    """
    return await resources.enter_async_context(
        entrance.reserving(entry, model, id, reads=reads, writes=writes, succeeds=succeeds)
    )


def _refuse(plan: Plan, response: Response) -> None:
    """Raise NotSteered for an end that no response goes on from."""
    if response.status is ResponseStatus.CANCELLED:
        raise NotSteered("response_not_active", "The response was cancelled.")
    if response.status is ResponseStatus.FAILED:
        raise NotSteered("successor_creation_failed", "The response failed.")
    if required_input(response):
        raise NotSteered(
            "successor_creation_failed", "The response called a tool. Send the message with the outputs of its calls."
        )
    if not plan.settings:
        raise NotSteered("steering_not_supported", "The service can't continue this response by itself.")


def give_back(response: Response, steers: Sequence[Steer], why: NotSteered) -> tuple[list[Event], Response]:
    """The events that give steers back, and the response, which does so too, for callers that don't follow it."""
    error = SteerError(why.code, why.message)
    all_of_them = [GivenBack(SteerShown(response.id, each.id, msgspec.Raw(each.said)), error) for each in steers]
    events: list[Event] = [SteerFailed(steer=each.steer, code=why.code, message=why.message) for each in all_of_them]
    return events, Extensions.extend(response, failed_steers=all_of_them)
