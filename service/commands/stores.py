"""The store as commands reach it: Redis, or the embedded server of the data folder."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from service.commands.serve import StartError, own_redis
from service.process import open_store
from service.settings.core import CoreSettings
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore

T = TypeVar("T")


def on_store(settings: CoreSettings, work: Callable[[ConversationHistoryStore], Awaitable[T]]) -> T:
    """Do something with the settings' Redis. Raises StoreError, OSError."""

    async def do(url: str) -> T:
        store = open_store(settings.model_copy(update={"redis_url": url}))
        try:
            return await work(store)
        finally:
            await store.close()

    with server_url(settings) as url:
        return asyncio.run(do(url))


@contextmanager
def server_url(settings: CoreSettings) -> Generator[str]:
    """The Redis that is set; else the embedded server that another process runs, or one of our own meanwhile."""
    if settings.redis_url:
        yield settings.redis_url
        return
    try:
        opened = own_redis(settings)
    except StartError as error:
        raise StoreUnavailable(str(error)) from error
    with opened as url:
        yield url
