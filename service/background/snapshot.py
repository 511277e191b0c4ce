"""Progress: a background response as it stands while it is under way, folded from its event log.

The last snapshot spares most of the log. A response that ends in between is read as it was stored.
"""

import asyncio

import msgspec

from service.api.response import Response, ResponseStatus, decode_response
from service.responses.output.fold import Fold
from service.responses.output.journal import decode_merged
from service.responses.service import Service
from service.steps import BRIEFLY
from store.turn import Found

READ_ENTRIES = 256
"""The most entries that are read and folded at once: a millisecond's work or two."""

LOOKS = 3
"""How often a response is read that ends just then: once is enough, as what has ended stays so."""

_JSON = msgspec.json.Encoder()


async def find(service: Service, tenant: str, id: str) -> tuple[Found, bytes]:
    """A response and where it stands: as served, or with what is there so far, as JSON.

    Raises NotFound, StoreUnavailable.
    """
    found = await service.store.find(tenant, id)
    for _ in range(LOOKS):
        if not found.under_way:
            break
        response = await _folded(service, tenant, id)
        if response is not None:
            return found, _JSON.encode(msgspec.structs.replace(response, status=ResponseStatus(found.status)))
        found = await service.store.find(tenant, id)
    return found, found.response


async def _folded(service: Service, tenant: str, id: str) -> Response | None:
    """What the log comes to; None where there is none any more."""
    snapshot = await service.jobs.snapshot(tenant, id)
    after, fold = -1, Fold()
    if snapshot is not None:
        after, fold = snapshot[0], Fold.resume(decode_response(snapshot[1]), snapshot[0])
    empty = snapshot is None
    while entries := await service.log.read(tenant, id, after, READ_ENTRIES):
        for entry in entries:
            fold.add(decode_merged(entry.blob, entry.last))
        after, empty = entries[-1].last, False
        if len(entries) < READ_ENTRIES:
            break
        await asyncio.sleep(BRIEFLY)
    return None if empty else fold.response
