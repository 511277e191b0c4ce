"""Joining a store: whoever starts agrees with its layout record first, or doesn't start (store/layout.py).

A store that doesn't answer keeps nobody from starting: `/ready` says so then, and every sweep asks the record again.
Never join in the event loop that serves.
"""

import asyncio

from service.responses.service import open_layout
from service.settings.settings import Settings
from store.errors import StoreUnavailable
from store.redis.connection import Server, connect


def join(settings: Settings, *, alone: bool = False) -> None:
    """Agree with the record of the settings' store. `alone`: nobody else uses it, so its limits change with ours.

    Raises LayoutMismatch where this process must not use the store.
    """
    asyncio.run(_join(settings, alone=alone))


async def _join(settings: Settings, *, alone: bool) -> None:
    client = connect(settings.redis_url, max_connections=1, timeout_seconds=settings.store_timeout_seconds)
    server = Server(client, timeout_seconds=settings.store_timeout_seconds, attempts=1)
    try:
        await open_layout(settings, server, alone=alone).agree()
    except StoreUnavailable:  # known again soon: by the first sweep, and by each probe
        return
    finally:
        await server.close()
