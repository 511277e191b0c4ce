"""Joining a store: a process agrees with its layout record first, or doesn't start (store/layout.py).

A store that doesn't answer keeps nobody from starting: `/ready` says so then, and every sweep asks the record again.
Never join in the event loop that serves.
"""

import asyncio

from service.metrics.scrape import read_shards
from service.process import open_jobs, open_layout, open_store, open_store_archive
from service.settings.settings import Settings, variable
from store.errors import ArchiveForeign, ArchiveUnavailable, ArchiveUnfit, StoreError, StoreUnavailable, Unsupported


def join(settings: Settings, *, alone: bool = False) -> None:
    """Agree with the record of the settings' store. `alone`: nobody else uses it, so its limits change with ours.

    Raises LayoutMismatch where this process must not use the store, and Unsupported where that, or the archive, can't
    do what is asked.
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
        archive = open_store_archive(settings, store)
        if archive is not None:
            try:
                await archive.open()
            finally:
                await archive.close()
        await store.confirmer.require(store.keyspace.all_shards())
    except (StoreUnavailable, ArchiveUnavailable):  # known again soon: by the first sweep, and by each probe
        return
    except (ValueError, ArchiveUnfit, ArchiveForeign) as error:
        raise Unsupported(f"{variable('archive_url')} {error}") from error
    finally:
        await store.close()
