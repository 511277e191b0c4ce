"""A hold on the conversation that a response will be added to, so that nothing is sampled for nothing.

A hold is a lease in the store. Its holder renews it as long as it lives, and it lapses if the holder dies. Never keep
one beyond the terminal event: a client that has seen this event may send its next request.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from service.loans import Loans, renew_for_ever
from service.responses.service import Service
from service.settings.core import RENEWALS
from store.history.conversations import Conversations
from store.turn import Turn


class ConversationHold:
    """A conversation that is held for one turn."""

    def __init__(self, conversations: Conversations, loans: Loans, tenant: str, id: str) -> None:
        self.id = id
        self.over = False
        """Whether it is let go of, or somebody else has it."""
        self._conversations = conversations
        self._loans = loans
        self._tenant = tenant
        self._name: str = conversations.history.token()
        self._renewing: asyncio.Task[None] | None = None
        self._turns = asyncio.Lock()
        """One word to the store at a time: a renewal that came after the end would hold it again."""

    async def hold(self, seconds: float) -> None:
        """Hold it for so many seconds, again and again until it is over. Raises ConversationHeld, ConversationNotFound,
        StoreUnavailable.
        """
        await self._hold(seconds)
        self._renewing = asyncio.create_task(renew_for_ever(partial(self._hold, seconds), seconds / RENEWALS))

    async def add(self, turn: Turn) -> None:
        """Store the turn as the newest of the conversation, and let go of this. Raises what `advance` does."""
        async with self._turns:
            await self._conversations.advance(self._tenant, self.id, turn, hold=self._name)
            self._end()

    @asynccontextmanager
    async def handing_over(self) -> AsyncGenerator[str]:
        """The name of the hold, for the next holder to take over in the block; where that raises, it stays here."""
        async with self._turns:
            yield self._name
            self._end()

    async def let_go(self) -> None:
        """Let go of the conversation, if it is still held; where the store is away, as soon as it is back."""
        if not self.over:
            await self._loans.give_back_now(self.release)

    async def release(self) -> None:
        """Let go of the conversation, if it is still held. Raises StoreUnavailable."""
        async with self._turns:
            if not self.over:
                known = self._renewing is not None
                self._stop_renewing()
                await self._conversations.release(self._tenant, self.id, self._name)
                self.over = known  # else it may yet be held

    def _end(self) -> None:
        self.over = True
        self._stop_renewing()

    def _stop_renewing(self) -> None:
        """No renewal is under way, as that has its turn alone."""
        if self._renewing is not None:
            self._renewing.cancel()

    async def _hold(self, seconds: float) -> None:
        """The next renewal may do where this one fails; else `advance` says whether somebody came in between."""
        async with self._turns:
            await self._conversations.hold(self._tenant, self.id, self._name, seconds)


@asynccontextmanager
async def joining(service: Service, tenant: str, id: str) -> AsyncGenerator[ConversationHold]:
    """Hold a conversation until the end of the block, or until something was added to it. Waits for the end of a
    response of it whose client has gone.

    Raises ConversationHeld, ConversationNotFound, StoreUnavailable.
    """
    await service.running.ended(tenant, id, stopped=True)
    joined = ConversationHold(service.conversations, service.loans, tenant, id)
    hold = partial(joined.hold, service.settings.lease_seconds)
    async with service.loans.on_loan(hold, joined.release) as loan:
        try:
            yield joined
        finally:
            loan.over = joined.over
