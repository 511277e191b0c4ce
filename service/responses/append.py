"""The end of a response in the foreground: its turn is stored in one piece.

While the store is away the end waits for it. A response that can't be stored fails and still carries its output.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from service import spans
from service.api.events import Event
from service.api.response import Response, ResponseError, ResponseStatus
from service.logs import event
from service.responses.conversation_hold import ConversationHold
from service.responses.output.machine import Machine
from service.responses.plan import Plan, expense_of, turn_of
from service.responses.prepare import Prepared
from service.responses.service import Service
from service.store_away import retry
from store.errors import ConversationMoved, ConversationNotFound, StoreError, StoreUnconfirmed
from store.turn import Turn

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class AppendSink:
    """Stores the turn of a response in the foreground. Where that is `prepared` as a stream, its caller learns its id
    even where it fails without output.
    """

    service: Service
    tenant: str
    prepared: Prepared
    unstored: StoreError | None = field(default=None, init=False)
    """Why the turn could not be stored, once that is so."""

    async def finish(self, plan: Plan, machine: Machine, response: Response) -> list[Event]:
        """Store the turn, where that is wanted. If it can't be, the response fails and still carries its output."""
        parent, joining = self.prepared.parent, self.prepared.joining
        patience = self.service.settings.store_patience_seconds
        failed = response.status is ResponseStatus.FAILED
        unheard = failed and not response.output and not self.prepared.stream
        stored = plan.stored and not unheard
        if stored or machine.asked:
            span = spans.current.get().child("store.append")
            try:
                if machine.asked and not failed:
                    asking = partial(self.service.toolbox.approvals.ask, self.tenant, plan.id, machine.asked)
                    await retry(asking, patience, until_confirmed=True)
                if stored:
                    turn = turn_of(plan, machine, response, self.service.said_after(plan.said, response.output))
                    storing = partial(self.service.store.append, self.tenant, turn, pin=parent.pin)
                    if joining is not None and not failed:
                        storing = partial(_join, joining, turn, storing)
                    await retry(storing, patience, until_confirmed=True)
                    parent.released()
            except StoreUnconfirmed as lack:  # a GET shows it as it is, so nobody is told otherwise
                parent.released()
                response = mark_unconfirmed(response, lack)
            except StoreError as error:
                self.unstored = error
                event(logger, logging.ERROR, "response not stored", response_id=response.id, reason=str(error))
                response = _not_stored(response, error)
                span.fail(spans.kind_of(error))
            finally:
                span.end()
        if not stored or self.unstored is not None:
            await self._count(plan, response, answered=not unheard)
        if joining is not None:
            await joining.let_go()  # before anybody hears of the end, and sends what comes next
        self.service.running.over(self.tenant, plan.id)
        return machine.terminal(response)

    async def _count(self, plan: Plan, response: Response, *, answered: bool) -> None:
        """Count the usage of a response that isn't stored, unless it came to nothing but an error."""
        expense = expense_of(plan, response)
        if expense is not None and (answered or expense.output_tokens):
            await self.service.tenants.entrance.count(self.tenant, plan.id, expense)


async def _join(joining: ConversationHold, turn: Turn, store_alone: Callable[[], Awaitable[None]]) -> None:
    """Store the turn in its conversation, or alone where that was deleted meanwhile."""
    try:
        await joining.add(turn)
    except ConversationNotFound:
        event(logger, logging.INFO, "the conversation was deleted before its response ended", response_id=turn.id)
        await store_alone()


def mark_unconfirmed(response: Response, lack: StoreUnconfirmed) -> Response:
    """A response that is stored, and says that it isn't as safe as it should be; so does the log."""
    event(logger, logging.ERROR, "response stored, but not confirmed", response_id=response.id, reason=str(lack))
    return msgspec.structs.replace(response, durability="unconfirmed")


def _not_stored(response: Response, error: StoreError) -> Response:
    reason = "The response could not be stored in time, so it may be impossible to continue."
    if isinstance(error, ConversationMoved):
        reason = "Another response was added to the conversation meanwhile, so this one was not stored."
    return msgspec.structs.replace(
        response,
        status=ResponseStatus.FAILED,
        completed_at=None,
        incomplete_details=None,
        error=ResponseError("server_error", f"{reason} Its output is complete."),
    )
