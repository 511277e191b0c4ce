"""The store as commands reach it: Redis, or the embedded server of the data folder."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from service.process import open_store
from service.settings.core import CoreSettings
from store.embedded import EmbeddedServer
from store.embedded import address_of as socket_of
from store.errors import DataFolderBusy
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
    server = EmbeddedServer(settings.data_dir)
    try:
        server.start()
    except DataFolderBusy:
        yield socket_of(settings.data_dir)
        return
    try:
        yield server.url
    finally:
        server.stop()
