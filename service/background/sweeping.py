"""Sweeping: what is left of deleted conversations, what nobody used for too long, and event logs that were kept for
long enough, go a little at a time.

Every process sweeps. That is harmless, and one that dies is not missed. What is to be swept is unknown to everybody
already, so a store that can't be reached now only means that its memory is freed later.
"""

import asyncio
import logging
import random

from service import logs
from store.errors import StoreError
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs

logger = logging.getLogger(__name__)


async def sweep_for_ever(store: ConversationHistoryStore, jobs: Jobs, seconds: float) -> None:
    """Sweep every `seconds` on average, not at the same moment as other processes, until cancelled."""
    while True:
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
        try:
            await store.sweep()
            await jobs.expire_logs()
        except StoreError as error:
            logs.event(logger, logging.WARNING, "not swept", reason=str(error))
