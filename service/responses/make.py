"""One assembly for every door: from a request to its run in this process, or to what a worker will run.

    request ─▶ plan, its parent pinned ─▶ claimed ─▶ storable ─▶ reserved ─┬─▶ Ran
                                                                           └─▶ Queued

Routes, the lanes of a WebSocket and the successors of steered responses differ in their Maker alone. Nothing is stored
here: a run stores its turn at its end, and a queued response is stored by whoever queues it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import NamedTuple

import msgspec

from service.api.approving import MayCall
from service.api.outcome import ApprovalRequest
from service.api.request import CreateRequest
from service.entrance import Reservation
from service.responses.append import AppendSink
from service.responses.drive import BeginCall, Driver, UseUp, machine_of
from service.responses.parent import Parent
from service.responses.pictures import Pictures
from service.responses.plan import Plan
from service.responses.prepare import Prepared, Recall, prepare
from service.responses.seal import Seals, seal_for
from service.responses.service import Caller, Service
from service.store_away import retry
from service.tools.hosted import HostedTools
from service.tools.port import Runner
from store.errors import NotFound
from store.history.history import ConversationHistoryStore


class Claim:
    """The right to make what one request asks for. Without an Idempotency-Key others know nothing of it."""

    made = ""
    """The digits of the response that an earlier request with its key stored: that is the answer."""
    lasts = False
    """Whether the response is made to its end although its client is gone, as the client may ask for it again."""
    digits = ""
    """The digits under which to store it, where an earlier request has fixed them."""
    begin_call: BeginCall | None = None
    """The check of its run before a call that may have an effect, where the request may be taken over."""

    def runs(self, driver: Driver) -> None:
        """Note the run that makes it, which stops where another request takes over."""

    async def name(self, id: str, *, kept: bool = True) -> str:
        """The id under which it is stored, if it is to be `kept`: `id`, unless an earlier request has fixed another. To
        be awaited before anything is stored. Raises ApiError, StoreUnavailable.
        """
        return id


NO_KEY = Claim()


class Maker(NamedTuple):
    """A request's door: on whose behalf it is made, within which bounds, and what it goes on from."""

    service: Service
    caller: Caller
    reserve: Callable[..., Awaitable[Reservation | None]]
    """Reserves of its caller's limits, as long as some resources, for a model and an id, with the tokens that it reads
    and writes at most. Raises ApiError 429, StoreUnavailable.
    """
    preparing: AbstractAsyncContextManager[None] = nullcontext()
    """The time in which it is read and planned, which takes many times its size."""
    note: Callable[[Prepared], None] = lambda _: None
    """Hears of its plan."""
    since: float = 0.0
    """When it was asked for, by the monotonic clock."""
    recall: Recall | None = None
    """The look-up of what its connection remembers."""
    parent: Parent | None = None
    """The chain of the response that it succeeds, which has yet to end."""
    claim: Claim = NO_KEY


class Ran(NamedTuple):
    """A response to be made in this process."""

    prepared: Prepared
    driver: Driver
    sink: AppendSink


class Queued(NamedTuple):
    """A response for a worker."""

    prepared: Prepared
    reserved: Reservation | None

    def handed_over(self, maker: Maker) -> AbstractContextManager[None]:
        """The block in which it is stored; what is reserved for it goes to the process that ends it."""
        if self.reserved is None:
            return nullcontext()
        return self.reserved.handed_over(
            partial(_is_there, maker.service.store, maker.caller.tenant, self.prepared.plan.id)
        )


async def make(maker: Maker, read: Callable[[], CreateRequest], resources: AsyncExitStack) -> Ran | Queued:
    """The response to the request that `read` gives: its parent is pinned, or its conversation held, and its limits are
    reserved as long as its `resources`. Raises ApiError, StoreError, EngineUnavailable, and what `read` raises.
    """
    service, claim, tenant = maker.service, maker.claim, maker.caller.tenant
    maker.caller.entry.require("api.responses.write")  # a key may have lost it since, where no request asks for this
    async with maker.preparing:
        planned = await prepare(service, maker.caller, read(), resources, recall=maker.recall, parent=maker.parent)
    maker.note(planned)
    plan = planned.plan
    await claim.name(plan.id, kept=plan.stored or plan.base.background)
    if maker.parent is None:  # a successor is stored with the end before it, which waits for the store
        await storable(service.store, plan)
    reserved, asked = None, plan.generation
    if planned.samples:
        writes = asked.sampling.max_tokens
        reserved = await maker.reserve(resources, asked.model, plan.id, reads=plan.input_tokens, writes=writes)
    if plan.base.background:
        plan = msgspec.structs.replace(plan, reserved=reserved is not None)
        return Queued(msgspec.structs.replace(planned, plan=plan), reserved)
    sink, patience = AppendSink(service, tenant, planned), service.settings.store_patience_seconds
    driver = Driver(
        plan=plan,
        machine=machine_of(plan, await seal_for(service.seals, tenant, plan.rules), service.toolbox.cite),
        finish=sink.finish,
        engine=service.engine,
        metrics=service.metrics,
        mode="stream" if planned.stream else "plain",
        since=maker.since,
        seconds=service.settings.request_seconds,
        clock=service.store.clock,
        tracing=service.tracing,
        tools=await tools_of(service.toolbox, service.seals, tenant, plan),
        use_up=use_up_for(service, tenant, plan, service.store.token()),
        begin_call=claim.begin_call,
        pictures=Pictures(service.pictured, service.store, tenant, plan.id, plan.pictures, patience),
        samples=planned.samples,
        remade=claim.lasts,
    )
    if plan.stored:
        ids = [plan.id] if plan.conversation is None else [plan.id, plan.conversation]
        resources.enter_context(service.running.making(tenant, ids, driver.run))
    claim.runs(driver)
    if reserved is not None:
        reserved.work = driver
    return Ran(planned, driver, sink)


async def tools_of(toolbox: HostedTools, seals: Seals, tenant: str, plan: Plan) -> Runner | None:
    """The runner of the tool calls of a plan's response; None where the service runs none. Raises StoreUnavailable."""
    if not plan.rules.hosts:
        return None
    if not plan.connections:
        return toolbox.run(tenant)
    _, connections = (await seals.of(tenant)).open(plan.connections)
    return toolbox.run(tenant, connections)


def use_up_for(service: Service, tenant: str, plan: Plan, run: str) -> UseUp | None:
    """The function that uses up the approvals with which a plan's response begins, for the run of this name; None where
    there are none.
    """
    if plan.rules.answers is None:
        return None

    async def use_up(request: ApprovalRequest) -> MayCall:
        using = partial(service.toolbox.approvals.use_up, tenant, request, by=plan.id, run=run)
        return await retry(using, service.settings.store_patience_seconds, until_confirmed=True)

    return use_up


async def storable(store: ConversationHistoryStore, plan: Plan) -> None:
    """Raises StoreUnavailable where the response is to be stored, and the store known to be away or not safe enough;
    and DiskFull where it took none the last time.
    """
    if plan.stored and (store.full or store.server.health.away is not None):
        await store.prove(plan.id)


async def _is_there(store: ConversationHistoryStore, tenant: str, id: str) -> bool:
    """Whether a response was accepted. Raises StoreUnavailable."""
    try:
        await store.find(tenant, id, touches=False)
    except NotFound:
        return False
    return True
