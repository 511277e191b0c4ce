"""Waiting for a store that is away: work that is safe to repeat is done again until it is back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.backoff import Backoff
from store.errors import StoreUnavailable, StoreUnconfirmed

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
