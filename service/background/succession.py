"""Succession: when a background response ends, its steers are applied to a successor, or given back.

    steers ─┬─▶ applied: the input of a response that goes on from it, which the script that ends the one accepts
            └─▶ given back: in events before the terminal one, and in the response itself

The successor has the settings of the request for the first one, which its plan keeps, and the conversation as it stands
with the end that is about to be stored. Never end a response in one write and begin the next in another.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec

from service import spans
from service.api.events import Event, SteerFailed
from service.api.response import Extensions, GivenBack, Response, ResponseStatus, SteerError, SteerShown
from service.api.steer import NotSteered, messages_in, required_input, settled
from service.background.submit import accepted
from service.engine.port import EngineError
from service.errors import ApiError
from service.responses.make import Maker, Queued, make
from service.responses.output.machine import Machine
from service.responses.parent import Parent
from service.responses.plan import Plan, messages_of
from service.responses.refusals import refusal_of
from service.responses.remembered import remembered
from service.responses.service import Caller, Service
from service.store_away import retry
from service.tenants.limits import Allowance, Reservation
from store.errors import StoreError, StoreUnavailable
from store.jobs.model import Steer, Successor
from store.turn import Chain

Succeed = Callable[[Plan, Machine, Response, Sequence[Steer], float], AbstractAsyncContextManager[Successor]]
"""Makes the response that goes on from one with its steers. It is stored in the block, or nothing is reserved
for it of limits any more. The store may be away for so many seconds. Raises NotSteered where none can go on."""


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
    """See Succeed. Raises StoreUnavailable too."""
    _refuse(plan, response)
    said = [message for steer in steers for message in messages_in(msgspec.Raw(steer.said))]
    async with AsyncExitStack() as resources:
        try:
            above = await retry(partial(service.store.chain, tenant, plan.id, above=True), patience)
            parent = Parent(_with_end(service, above, plan, machine))
            project = None if service.key_ring is None else await service.key_ring.project(tenant)
            asked = plan.generation
            caller = Caller(tenant, asked.trace, session=asked.affinity, key=plan.key, project=project)
            maker = Maker(service, caller, partial(_reserved, service, caller), parent=parent)
            made = await make(maker, partial(settled, plan.settings, plan.id, said), resources)
        except msgspec.DecodeError as error:
            why = "Its settings were kept by another release, and this one can't read them."
            raise NotSteered("successor_creation_failed", why) from error
        except StoreUnavailable:
            raise
        except (ApiError, EngineError, StoreError) as error:
            raise NotSteered("successor_creation_failed", refusal_of(error).message) from error
        assert isinstance(made, Queued)  # the settings of a background response are kept alone
        turn, spec, entry, _ = await accepted(made.prepared.plan, spans.current.get().headers)
        with made.handed_over(maker):
            yield Successor(turn, spec, entry)


@asynccontextmanager
async def _reserved(service: Service, caller: Caller, plan: Plan) -> AsyncGenerator[Reservation | None]:
    """The reservation of a successor from the limits of its project, and of the key that asked for the first response,
    as they are now. Raises ApiError 429, StoreUnavailable.
    """
    own = None if caller.project is None else caller.project.limit
    key = await service.directory.find_key(caller.tenant, caller.key) if caller.key else None
    allowance = Allowance(caller.tenant, own, caller.key, None if key is None else key.limit)
    asked = plan.generation
    async with service.limiter.reserved(
        allowance, asked.model, plan.id, reads=plan.input_tokens, writes=asked.sampling.max_tokens, succeeds=True
    ) as reservation:
        yield reservation


def _refuse(plan: Plan, response: Response) -> None:
    """Raise NotSteered for an end that no response goes on from."""
    if response.status is ResponseStatus.CANCELLED:
        raise NotSteered("response_not_active", "The response was cancelled.")
    if response.status is ResponseStatus.FAILED:
        raise NotSteered("successor_creation_failed", "The response failed.")
    if required_input(response):
        raise NotSteered("successor_creation_failed", "It called a tool. Say it with the outputs of its calls.")
    if not plan.settings:
        raise NotSteered("steering_not_supported", "The response can't be continued by itself.")


def _with_end(service: Service, above: Chain, plan: Plan, machine: Machine) -> Chain:
    """The chain that a response ends, with the turn that it will add. Raises ChainTooLong."""
    messages = messages_of(plan, machine)
    chain = remembered(above, plan.id, messages, stored=True).chain
    service.store.refuse_long(chain)
    return chain


def succeeded(response: Response, successor: Successor) -> Response:
    """The response, with its successor in it."""
    return msgspec.structs.replace(response, harmonium=Extensions(succeeded_by=successor.turn.id))


def given_back(response: Response, steers: Sequence[Steer], why: NotSteered) -> tuple[list[Event], Response]:
    """The events that give steers back, and the response, which does so too, for callers that don't follow it."""
    error = SteerError(why.code, why.message)
    all_of_them = [GivenBack(SteerShown(response.id, each.id, msgspec.Raw(each.said)), error) for each in steers]
    events: list[Event] = [SteerFailed(steer=each.steer, code=why.code, message=why.message) for each in all_of_them]
    return events, msgspec.structs.replace(response, harmonium=Extensions(failed_steers=all_of_them))
