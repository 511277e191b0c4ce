"""The end of a response in the foreground: its turn is stored in one piece.

While the store is away the end waits for it. A response that can't be stored fails and still carries its output.
"""

import logging
from functools import partial

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Response, ResponseError, ResponseStatus
from service.logs import event
from service.responses.output.machine import Machine
from service.responses.plan import Plan, expense_of, turn_of
from service.responses.prepare import Prepared
from service.responses.service import Service
from service.store_away import retry
from store.errors import ConversationMoved, ConversationNotFound, StoreError, StoreUnconfirmed
from store.history.approvals import Approvals
from store.history.history import ConversationHistoryStore
from store.turn import Turn

logger = logging.getLogger(__name__)


class AppendSink:
    """Stores the turn of a response in the foreground."""

    def __init__(self, service: Service, tenant: str, prepared: Prepared) -> None:
        """The end waits for a store that is away as long as the settings say. Where the response is `prepared` as a
        stream, its caller learns its id even where it fails without output.
        """
        self._service = service
        self._tenant = tenant
        self._parent = prepared.parent
        self._streamed = prepared.stream
        self._patience = service.settings.store_patience_seconds
        self._joining = prepared.joining
        self.unstored: StoreError | None = None
        """Why the turn could not be stored, once that is so."""

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn, where that is wanted. If it can't be, the response fails and still carries its output."""
        failed = response.status is ResponseStatus.FAILED
        unheard = failed and not response.output and not self._streamed
        stored = plan.stored and not unheard
        if stored or machine.asked:
            span = spans.current.get().child("store.append")
            try:
                if machine.asked and not failed:
                    asking = partial(ask, self._service.store, self._tenant, plan, machine)
                    await retry(asking, self._patience, until_confirmed=True)
                if stored:
                    storing = partial(self._store_turn, turn_of(plan, machine, response), joins=not failed)
                    await retry(storing, self._patience, until_confirmed=True)
                    self._parent.released()
            except StoreUnconfirmed as lack:  # a GET shows it as it is, so nobody is told otherwise
                self._parent.released()
                response = unconfirmed(response, lack)
            except StoreError as error:
                self.unstored = error
                event(logger, logging.ERROR, "response not stored", response_id=response.id, reason=str(error))
                response = _not_stored(response, error)
                span.fail(spans.kind_of(error))
            finally:
                span.end()
        if not stored or self.unstored is not None:
            await self._count(plan, response, answered=not unheard)
        if self._joining is not None:
            await self._joining.let_go()  # before anybody hears of the end, and sends what comes next
        return machine.terminal(response)

    async def _count(self, plan: Plan, response: Response, *, answered: bool) -> None:
        """Count the usage of a response that isn't stored, unless it came to nothing but an error."""
        expense = expense_of(plan, response)
        if expense is not None and (answered or expense.output_tokens):
            await self._service.tenants.tally.count(self._tenant, plan.id, expense)

    async def _store_turn(self, turn: Turn, *, joins: bool) -> None:
        """Store the turn, in its conversation if it has one that is still there and the turn `joins` it."""
        if joins and self._joining is not None:
            try:
                await self._joining.add(turn)
                return
            except ConversationNotFound:
                event(logger, logging.INFO, "its conversation was deleted meanwhile", response_id=turn.id)
        await self._service.store.append(self._tenant, turn, pin=self._parent.pin)


async def ask(store: ConversationHistoryStore, tenant: str, plan: Plan, machine: Machine) -> None:
    """Note the approvals for which a response asks, so that each can be used once. Raises StoreUnavailable."""
    asked = {each.place.place: each.digest for each in machine.asked if each.place is not None}
    await Approvals(store).ask(tenant, plan.id, asked)


def unconfirmed(response: Response, lack: StoreUnconfirmed) -> Response:
    """A response that is stored, and says that it isn't as safe as it should be; so does the log."""
    event(logger, logging.ERROR, "response not as safe as it should be", response_id=response.id, reason=str(lack))
    return msgspec.structs.replace(response, durability="unconfirmed")


def _not_stored(response: Response, error: StoreError) -> Response:
    reason = "The response could not be stored in time, so it may not be there to be continued."
    if isinstance(error, ConversationMoved):
        reason = "Another response was added to the conversation meanwhile, so this one was not stored."
    return msgspec.structs.replace(
        response,
        status=ResponseStatus.FAILED,
        completed_at=None,
        incomplete_details=None,
        error=ResponseError("server_error", f"{reason} Its output is complete."),
    )
