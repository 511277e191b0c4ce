"""Cancelling a background response, by any replica.

One script notes that it is cancelled and takes the job away from its worker; that alone is the promise. The closing
events and the turn are then written at once, so that the answer can be continued; if this process dies first, a worker
does it when the lease has run out.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from time import monotonic

from service import logs
from service.background.attempt import Attempt
from service.background.follow import find
from service.responses.service import Service
from service.settings.background import RENEWALS
from store.errors import StoreError, StoreUnavailable
from store.jobs.jobs import Jobs
from store.jobs.model import Lease

logger = logging.getLogger(__name__)


async def cancel(service: Service, tenant: str, id: str) -> bytes:
    """Cancel a response; its JSON, with the output by then. Once it is cancelled, a repeat changes nothing.

    Raises NotFound, NotCancellable, StoreUnavailable.
    """
    began = monotonic()
    job = await service.jobs.cancel(tenant, id)
    if job is not None:
        try:
            async with _renewed(service.jobs, job.lease), service.cancel_slots:
                await Attempt(service, job, patience=service.settings.store_timeout_seconds).make()
        except StoreUnavailable as failure:
            logs.event(logger, logging.WARNING, "cancelled, not yet closed", response_id=id, reason=str(failure))
    response = await find(service.store, service.jobs, service.log, tenant, id)
    service.metrics.cancel_seconds.observe(monotonic() - began)
    return response


@asynccontextmanager
async def _renewed(jobs: Jobs, lease: Lease) -> AsyncGenerator[None]:
    """Renew the lease for as long as closing takes: a long log, or many cancels at once, may outlast it."""

    async def renew_for_ever() -> None:
        while True:
            await asyncio.sleep(jobs.limits.lease_seconds / RENEWALS)
            with suppress(StoreError):  # the next one may do; without any, a worker ends it
                await jobs.renew([lease])

    renewing = asyncio.create_task(renew_for_ever())
    try:
        yield
    finally:
        renewing.cancel()
