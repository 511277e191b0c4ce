"""What a response is added to: a conversation that is held until then, so that nothing is sampled for nothing.

A hold is a lease in the store. It is renewed as long as its holder lives, and over by itself where that dies. Never
keep one beyond the terminal event: whoever has seen that may send what comes next.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from service import logs
from service.responses.service import Service
from service.settings.background import RENEWALS
from store.errors import StoreError
from store.history.conversations import Conversations
from store.turn import Turn

logger = logging.getLogger(__name__)


class Joining:
    """A conversation that is held for one turn."""

    def __init__(self, conversations: Conversations, tenant: str, id: str) -> None:
        self.id = id
        self._conversations = conversations
        self._tenant = tenant
        self._hold: str = conversations.history.token()
        self._held = False
        self._turns = asyncio.Lock()
        """One word to the store at a time: a renewal that came after the end would hold it again."""

    async def hold(self, seconds: float) -> None:
        """Hold it for so many seconds from now on. Raises ConversationHeld, ConversationNotFound, StoreUnavailable."""
        await self._conversations.hold(self._tenant, self.id, self._hold, seconds)
        self._held = True

    async def add(self, turn: Turn) -> None:
        """Store the turn as the newest of the conversation, and let go of this. Raises what `advance` does."""
        async with self._turns:
            await self._conversations.advance(self._tenant, self.id, turn, hold=self._hold)
            self._held = False

    @asynccontextmanager
    async def handing_over(self) -> AsyncGenerator[str]:
        """The name of the hold, for whoever takes it over in the block; where that raises, it stays here."""
        async with self._turns:
            yield self._hold
            self._held = False

    async def release(self) -> None:
        """Let go of the conversation, if it is still held; where the store is away the hold ends by itself."""
        async with self._turns:
            held, self._held = self._held, False
            if not held:
                return
            try:
                await self._conversations.release(self._tenant, self.id, self._hold)
            except StoreError as error:
                logs.event(logger, logging.WARNING, "hold left to expire", conversation_id=self.id, reason=str(error))

    async def renew(self, seconds: float) -> None:
        """Hold it for so long again and again, until this is cancelled or it is let go of."""
        while self._held:
            await asyncio.sleep(seconds / RENEWALS)
            async with self._turns:
                if not self._held:
                    return
                with suppress(StoreError):  # the next one may do; else advance says whether somebody came in between
                    await self._conversations.hold(self._tenant, self.id, self._hold, seconds)


@asynccontextmanager
async def joining(service: Service, tenant: str, id: str) -> AsyncGenerator[Joining]:
    """Hold a conversation until the end of the block, or until something was added to it.

    Raises ConversationHeld, ConversationNotFound, StoreUnavailable.
    """
    joined, seconds = Joining(service.conversations, tenant, id), service.settings.lease_seconds
    await joined.hold(seconds)
    renewing = asyncio.create_task(joined.renew(seconds))
    try:
        yield joined
    finally:
        await joined.release()
        renewing.cancel()
