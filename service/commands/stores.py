"""The store as commands reach it: Redis, or the embedded server of the data folder."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from service.commands.serve import StartError, own_redis
from service.process import open_store
from service.settings.core import CoreSettings
from service.settings.sources import variable
from store.errors import NoStore
from store.history.history import ConversationHistoryStore

T = TypeVar("T")


def on_store(
    settings: CoreSettings, work: Callable[[ConversationHistoryStore], Awaitable[T]], *, makes: bool = False
) -> T:
    """Do something with the settings' Redis. Raises StoreError, OSError; NoStore where there is none, and it `makes`
    none. It never makes one in a folder of a folder that isn't there, which somebody typed wrong.
    """
    parent = settings.data_dir.absolute().parent
    if makes and not settings.redis_url and "data_dir" in settings.model_fields_set and not parent.is_dir():
        raise NoStore(f"there is no {parent}, to make a store in; make it, or correct {variable('data_dir')}")

    async def do(url: str) -> T:
        store = open_store(settings.model_copy(update={"redis_url": url}))
        try:
            return await work(store)
        finally:
            await store.close()

    with server_url(settings, makes=makes) as url:
        return asyncio.run(do(url))


@contextmanager
def server_url(settings: CoreSettings, *, makes: bool = False) -> Generator[str]:
    """The Redis that is set; else the embedded server that another process runs, or one of our own meanwhile, which
    `makes` a store where there is none. Raises StoreUnavailable, NoStore, OSError.
    """
    if settings.redis_url:
        yield settings.redis_url
        return
    try:
        opened = own_redis(settings, makes=makes)
    except StartError as error:
        raise NoStore(str(error)) from error
    with opened as url:
        yield url
