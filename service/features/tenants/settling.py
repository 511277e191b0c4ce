"""The chores of tenants: usage that could not be counted before is counted, work is held within its limits, and what
nobody settled is settled by what is stored of it; changes of keys and projects are heard.
"""

import asyncio
import random
from collections.abc import Iterator
from functools import partial

from service.api.response import decode_response
from service.features.tenants.entrance import CountingEntrance, LimitingEntrance, ProjectEntrance
from service.features.tenants.usage import Tally
from service.ports import Chore
from service.responses.drive import spent_in
from service.store_away import tolerate
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, NotFound
from store.limits import MOST_DUE, DueReservation, Limits
from store.spent import Unspent

MOST_ROUNDS = 200
"""The most rounds of one look at due limits. A tenant may have thousands of responses that wait; none of them may lose
its place among those at once meanwhile, nor be in the way of what others reserved."""

COUNT_SECONDS = 60.0
"""How often usage that could not be counted is counted again."""


def tenant_chores(entrance: CountingEntrance) -> Iterator[Chore]:
    """The work that tenants make beside requests."""
    yield Chore("counting", partial(count_for_ever, entrance.tally))
    if isinstance(entrance, LimitingEntrance):
        yield Chore("limits", entrance.limiter.hold_for_ever)
        yield Chore("settling", partial(settle_for_ever, entrance.limiter.limits))
    if isinstance(entrance, ProjectEntrance):
        yield Chore("keys", entrance.ring.run)


async def count_for_ever(tally: Tally) -> None:
    """Count what could not be counted, again and again, never in step with other processes, until cancelled."""
    while True:
        await tally.settle()
        await asyncio.sleep(COUNT_SECONDS * random.uniform(0.5, 1.5))


async def settle_for_ever(limits: Limits) -> None:
    """Settle due reservations again and again, never in step with other processes, until cancelled."""
    while True:
        await asyncio.sleep(limits.held_seconds * random.uniform(0.5, 1))
        with tolerate(limits.history, "limits are settled later"):
            await settle_due(limits)


async def settle_due(limits: Limits) -> int:
    """Settle limits that nobody settled: their process was killed, or the store was away, when the response ended.
    Returns how many were looked at. Raises StoreUnavailable.

    A stored response says how much it took. One that is under way is left alone. Of one that is gone nobody will ever
    know more, so all that was reserved for it counts.
    """
    looked_at = 0
    for _ in range(MOST_ROUNDS):
        due = await limits.due()
        for each in due:
            await _settle(limits, each)
        looked_at += len(due)
        if len(due) < MOST_DUE:
            break
    return looked_at


async def _settle(limits: Limits, due: DueReservation) -> None:
    tenant, id = due
    try:
        found = await limits.history.find(tenant, id, touches=False)
    except NotFound:
        await limits.settle(tenant, id, Unspent.UNKNOWN)
        return
    except (NewerFormat, ArchiveUnavailable, ArchiveDamaged):  # it is settled later; until then it is in nobody's way
        found = None
    if found is None or found.under_way:
        await limits.hold(tenant, [id])
    else:
        response = await asyncio.to_thread(decode_response, found.response)
        await limits.settle(tenant, id, spent_in(response))
