"""A store that is away: work that is safe to repeat is done again until it is back, and chores go on later."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from service import logs
from service.backoff import Backoff
from store.errors import LayoutMismatch, StoreError, StoreUnavailable, StoreUnconfirmed
from store.history.history import ConversationHistoryStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES = Backoff(0.05, 1.0)
"""The pauses between tries. Each try has the store's own time limit."""


async def retry(work: Callable[[], Awaitable[T]], patience: float, *, until_confirmed: bool = False) -> T:
    """The result of `work`, which is safe to repeat: it is done again while the store is away, for `patience` seconds,
    and with `until_confirmed` also while its replicas or its disk lack the write. Raises its errors.
    """
    loop = asyncio.get_running_loop()
    deadline, failures = loop.time() + patience, 0
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if loop.time() >= deadline or (isinstance(error, StoreUnconfirmed) and not until_confirmed):
                raise
        failures += 1
        await asyncio.sleep(PAUSES.seconds(failures))


@contextmanager
def tolerate(store: ConversationHistoryStore, refused: str) -> Generator[None]:
    """The block, after which it goes on where the store fails. The log says so, unless it has said once that the store
    is away, or contradicts this process.
    """
    try:
        yield
    except LayoutMismatch:
        pass
    except StoreError as error:
        if store.server.health.away is None:
            logs.event(logger, logging.WARNING, refused, reason=str(error))
