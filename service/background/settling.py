"""Limits that nobody settled: their process was killed, or the store was away, when the response ended.

The process that finds a due one looks at its response. A stored response says how much it took. One that is under way
is left alone. Of one that is gone nobody will ever know more, so all that was reserved for it counts.
"""

import asyncio
import logging
import random

from service.api.response import decode_response
from service.logs import event
from service.responses.service import Service
from service.tenants.limits import spent_in
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, NotFound, StoreError
from store.limits import MOST_DUE, Due, Unspent

logger = logging.getLogger(__name__)

MOST_ROUNDS = 200
"""Of one look at what is due. A tenant may have thousands of responses that wait; none of them may lose its place among
those at once meanwhile, nor be in the way of what others reserved."""


async def settle_for_ever(service: Service) -> None:
    """Settle due reservations again and again, never in step with other processes, until cancelled."""
    seconds = service.limiter.limits.held_seconds
    while True:
        await asyncio.sleep(seconds * random.uniform(0.5, 1))
        try:
            await settle_due(service)
        except StoreError as error:
            if service.store.server.health.away is None:  # else the log has said so once
                event(logger, logging.WARNING, "limits are settled later", reason=str(error))


async def settle_due(service: Service) -> int:
    """Settle what is due, all of it where that is less than MOST_ROUNDS times what is looked at in one; how much was
    looked at. Raises StoreUnavailable.
    """
    looked_at = 0
    for _ in range(MOST_ROUNDS):
        due = await service.limiter.limits.due()
        for each in due:
            await _settle(service, each)
        looked_at += len(due)
        if len(due) < MOST_DUE:
            break
    return looked_at


async def _settle(service: Service, due: Due) -> None:
    limits, (tenant, id) = service.limiter.limits, due
    try:
        found = await service.store.find(tenant, id, touches=False)
    except NotFound:
        await limits.settle(tenant, id, Unspent.UNKNOWN)
        return
    except (NewerFormat, ArchiveUnavailable, ArchiveDamaged):  # it is settled later; until then it is in nobody's way
        await limits.hold(tenant, [id])
        return
    if found.under_way:
        await limits.hold(tenant, [id])
        return
    response = await asyncio.to_thread(decode_response, found.response)
    await limits.settle(tenant, id, spent_in(response))
