"""Control of a background response under way, by any replica: to cancel it, and to steer it.

One script notes it at the job; that alone is the promise. The script that cancels takes the job away from its worker.
The closing events and the turn are then written at once, so that the answer can be continued; if this process dies
first, a worker does it when the lease has run out. A steer is found by the process that ends the response. It makes the
steer the input of another response, or gives it back (submit.py). The worker is told, and ends the response at the
next boundary.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from time import monotonic

import msgspec

from service import logs
from service.api.response import ResponseStatus, SteerShown
from service.api.steer import no_steers_reason, read_in_steps, read_posted
from service.background.attempt import Attempt
from service.background.follow import find
from service.entrance import Entry
from service.errors import ApiError, InvalidRequest
from service.loans import renew_for_ever
from service.responses.refusals import QUEUE_RETRY_SECONDS, response_not_found
from service.responses.service import Service
from service.settings.core import RENEWALS
from service.steps import in_steps
from store.errors import NotFound, NotSteerable, SteersFull, StoreUnavailable, StoreUnconfirmed
from store.jobs.jobs import MAX_STEER_BYTES, MAX_STEERS, Jobs
from store.jobs.model import Lease, Steer

logger = logging.getLogger(__name__)

ID_BYTES = 24
"""How many bytes a steer's id has."""


async def cancel(service: Service, tenant: str, id: str) -> bytes:
    """Cancel a response; its JSON, with the output by then. Once it is cancelled, a repeat changes nothing.

    Raises NotFound, NotCancellable, StoreUnavailable.
    """
    began = monotonic()
    job = await service.jobs.cancel(tenant, id)
    if job is not None:
        try:
            async with _renewing(service.jobs, job.lease), service.tenants.pacing.cancelling:
                await Attempt(service, job, own_patience=service.settings.store_timeout_seconds).make()
        except StoreUnavailable as failure:
            logs.event(logger, logging.WARNING, "cancelled, not yet closed", response_id=id, reason=str(failure))
    response = await find(service.jobs, tenant, id)
    service.metrics.cancel_seconds.observe(monotonic() - began)
    return response


@asynccontextmanager
async def _renewing(jobs: Jobs, lease: Lease) -> AsyncGenerator[None]:
    """Renew the lease for as long as closing takes: a long log, or many cancels at once, may outlast it."""

    renewing = asyncio.create_task(renew_for_ever(partial(jobs.renew, [lease]), jobs.limits.lease_seconds / RENEWALS))
    try:
        yield
    finally:
        renewing.cancel()


class AcceptedSteer(msgspec.Struct, tag="response.steer.accepted", tag_field="type"):
    """The answer to a steer that the service now owns."""

    steer: SteerShown


async def steer(service: Service, entry: Entry, id: str, body: bytes, key: bytes = b"") -> AcceptedSteer:
    """Accept what `body` says to a response. The same body with the same `key` is said once.

    Raises ApiError, StoreFull, StoreUnavailable.
    """
    count = service.metrics.steers.labels
    try:
        said = await _read(service, entry, body, id)
        accepted = Steer(_id(id, key, said), said)
        await _say(service.jobs, entry.tenant, id, accepted)
    except Exception:
        count("background", "refused").inc()
        raise
    count("background", "accepted").inc()
    return AcceptedSteer(SteerShown(id, accepted.id))


async def _read(service: Service, entry: Entry, body: bytes, id: str) -> bytes:
    """The input in a body, checked with the files that it names, which its successor reads. Raises InvalidRequest,
    StoreError.
    """
    try:
        raw = read_posted(body, id)
        whole = await service.attachments.read_into(entry, raw)
        await in_steps(read_in_steps(whole, service.settings.picture_bounds))
    except InvalidRequest as error:
        if error.code in ("invalid_json", "steer_too_large"):
            raise
        raise InvalidRequest(error.message, code="invalid_input", param=error.param) from error
    return bytes(raw)


def _id(response_id: str, key: bytes, said: bytes) -> str:
    """The id of a steer: made from its sender's key, so that it may be sent again; random without one."""
    if not key:
        return f"steer_{secrets.token_hex(ID_BYTES)}"
    digest = blake2b(b"%d %b" % (len(key), key), digest_size=ID_BYTES)
    digest.update(response_id.encode())
    digest.update(said)
    return f"steer_{digest.hexdigest()}"


async def _say(jobs: Jobs, tenant: str, id: str, said: Steer) -> None:
    """Add the steer to the job. Raises as `steer` does."""
    try:
        await jobs.steer(tenant, id, said)
    except StoreUnconfirmed as lack:  # the steer is stored, and a repeat would store it twice
        message = "steer stored, but not confirmed"
        logs.event(logger, logging.ERROR, message, response_id=id, reason=str(lack))
    except NotFound as error:
        message = response_not_found(id).message
        raise ApiError(404, message, code="response_not_found", param="response_id") from error
    except SteersFull as error:
        raise ApiError(
            429,
            f"At most {MAX_STEERS} steers of {MAX_STEER_BYTES} bytes together wait for the end of a response. Send the "
            "message with the next request.",
            type="rate_limit_error",
            code="too_many_pending_steers",
            param="input",
            retry_after=QUEUE_RETRY_SECONDS,
        ) from error
    except NotSteerable as error:
        raise _not_steerable(id, error) from error


def _not_steerable(id: str, error: NotSteerable) -> InvalidRequest:
    """Why nothing can be said to a response."""
    if error.status is None:
        return InvalidRequest(
            "Only a background response can be steered, and only if it is stored, belongs to no conversation and "
            "doesn't compact.",
            code="steering_not_supported",
            param="response_id",
        )
    message = no_steers_reason(id, ResponseStatus(error.status)).message
    if error.status == ResponseStatus.COMPLETED:
        return InvalidRequest(message, code="response_already_completed", param="response_id")
    return InvalidRequest(message, code="response_not_active", param="response_id")
