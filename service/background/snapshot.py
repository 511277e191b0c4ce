"""A background response as it stands while it is under way, folded from its event log.

The last snapshot spares most of the log. A response that ends in between is read as it was stored.
"""

import asyncio

import msgspec

from service.api.response import Response, ResponseStatus, decode_response
from service.responses.output.fold import Fold
from service.responses.output.journal import decode_merged
from service.steps import BRIEFLY
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog

READ_ENTRIES = 256
"""The most entries that are read and folded at once: a millisecond's work or two."""

TRIES = 3
"""How often a response is read whose log is gone: it has ended just then, so one more is enough."""


async def find(store: ConversationHistoryStore, jobs: Jobs, log: EventLog, tenant: str, id: str) -> bytes:
    """A response as JSON: as served, or while it is under way with what is there so far.

    Raises NotFound, StoreUnavailable.
    """
    found = await store.find(tenant, id)
    for _ in range(TRIES):
        if not found.under_way:
            break
        response = await _folded(jobs, log, tenant, id)
        if response is not None:
            return msgspec.json.encode(msgspec.structs.replace(response, status=ResponseStatus(found.status)))
        found = await store.find(tenant, id)
    return found.response


async def _folded(jobs: Jobs, log: EventLog, tenant: str, id: str) -> Response | None:
    """What the log comes to; None where there is none any more."""
    snapshot = await jobs.snapshot(tenant, id)
    after, fold = -1, Fold()
    if snapshot is not None:
        after, fold = snapshot[0], Fold.resume(decode_response(snapshot[1]), snapshot[0])
    empty = snapshot is None
    while entries := await log.read(tenant, id, after, READ_ENTRIES):
        for entry in entries:
            fold.add(decode_merged(entry.blob, entry.last))
        after, empty = entries[-1].last, False
        if len(entries) < READ_ENTRIES:
            break
        await asyncio.sleep(BRIEFLY)
    return None if empty else fold.response
