"""Joining a store: whoever starts agrees with its layout record first, or doesn't start (store/layout.py).

A store that doesn't answer keeps nobody from starting: `/ready` says so then, and every sweep asks the record again.
Never join in the event loop that serves.
"""

import asyncio

from service.metrics.scrape import read_shards
from service.responses.service import open_jobs, open_layout, open_store
from service.settings.settings import Settings
from store.errors import StoreError, StoreUnavailable


def join(settings: Settings, *, alone: bool = False) -> None:
    """Agree with the record of the settings' store. `alone`: nobody else uses it, so its limits change with ours.

    Raises LayoutMismatch where this process must not use the store, and Unsupported where that can't do what is asked.
    """
    asyncio.run(_join(settings, alone=alone))


def stored_responses(settings: Settings) -> int | None:
    """How many responses the settings' store has; None where it doesn't say."""
    return asyncio.run(_stored_responses(settings))


async def _stored_responses(settings: Settings) -> int | None:
    store = open_store(settings)
    try:
        shards = await read_shards(open_jobs(settings, store))
        return sum(shard.responses for shard in shards.values())
    except StoreError:
        return None
    finally:
        await store.close()


async def _join(settings: Settings, *, alone: bool) -> None:
    store = open_store(settings)
    try:
        await open_layout(settings, store.server, alone=alone).agree()
        await store.confirmer.require(store.keyspace.all_shards())
    except StoreUnavailable:  # known again soon: by the first sweep, and by each probe
        return
    finally:
        await store.close()
