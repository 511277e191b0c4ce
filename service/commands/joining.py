"""Joining a store: whoever starts agrees with its layout record first, or doesn't start (store/layout.py).

A store that doesn't answer keeps nobody from starting: `/ready` says so then, and every sweep asks the record again.
Never join in the event loop that serves.
"""

import asyncio

from service.responses.service import open_layout, open_store
from service.settings.settings import Settings
from store.errors import StoreUnavailable


def join(settings: Settings, *, alone: bool = False) -> None:
    """Agree with the record of the settings' store. `alone`: nobody else uses it, so its limits change with ours.

    Raises LayoutMismatch where this process must not use the store, and Unsupported where that can't do what is asked.
    """
    asyncio.run(_join(settings, alone=alone))


async def _join(settings: Settings, *, alone: bool) -> None:
    store = open_store(settings)
    try:
        await open_layout(settings, store.server, alone=alone).agree()
        await store.confirmer.require(store.keyspace.all_shards())
    except StoreUnavailable:  # known again soon: by the first sweep, and by each probe
        return
    finally:
        await store.close()
