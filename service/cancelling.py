"""Cancelling a background response, by any replica.

One script says that it is cancelled and takes the job away from whoever works on it; that alone is the promise. What is
left, the closing events and the turn, the canceller does at once, so that its answer can be continued; if it dies
first, a worker does it when its lease has run out.
"""

import logging
from time import monotonic

from service import logs
from service.attempt import Attempt
from service.creation import Service
from service.progress import look
from store.errors import StoreUnavailable

logger = logging.getLogger(__name__)


async def cancel(service: Service, tenant: str, id: str) -> bytes:
    """Cancel a response; its JSON, with what was said by then. Once it is cancelled, a repeat changes nothing.

    Raises NotFound, NotCancellable, StoreUnavailable.
    """
    began = monotonic()
    job = await service.jobs.cancel(tenant, id)
    if job is not None:
        try:
            await Attempt(service, job, patience=service.settings.store_timeout_seconds).make()
        except StoreUnavailable as failure:
            logs.event(logger, logging.WARNING, "cancelled, not yet closed", response_id=id, reason=str(failure))
    _, response = await look(service, tenant, id)
    service.metrics.cancel_seconds.observe(monotonic() - began)
    return response
