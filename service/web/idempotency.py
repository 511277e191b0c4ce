"""Requests that come again: with the same Idempotency-Key, the same thing is made once, and told again.

    take ─▶ mine ─▶ named ─▶ (made, stored) ─▶ end
        ─▶ another's ─▶ wait ─▶ take
        ─▶ made ─▶ told as a GET would tell it

The owner records the response id before it stores the response. Its lease tells whether it died, and its successor
makes the same turn, or finds it stored: a crash between any two steps leaves one turn. The store knows the outcome
of a request (store/history/idempotency.py), and nothing is guessed. Never take a key from
another header: clients send those with every turn of a conversation.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial

from starlette.types import Receive

from service.api.approving import MayCall
from service.errors import ApiError, ClientGone, InvalidRequest, stopping, unavailable
from service.responses.drive import Driver
from service.responses.make import Claim
from service.responses.service import Service
from service.settings.core import RENEWALS
from service.store_away import retry
from service.web.body import watching
from service.web.exchange import Exchange
from store.errors import StoreError
from store.history.idempotency import FoundRequest, Keyed, KeyedRequests, TakenRequest
from store.keys import HEX_DIGITS

logger = logging.getLogger(__name__)

HEADER = b"idempotency-key"
MOST_CHARS = 255
_KEY = re.compile(rb"[\x20-\x7e]{1,%d}" % MOST_CHARS)


def key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of a request, None where it has none. Raises InvalidRequest for two, and for what can't be one."""
    found = [value for name, value in headers if name == HEADER]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidRequest(
            "The header 'Idempotency-Key' came more than once. Send it once.", code="invalid_idempotency_key"
        )
    if not _KEY.fullmatch(found[0]):
        raise InvalidRequest(
            f"The header 'Idempotency-Key' has {len(found[0])} bytes. Send 1 to {MOST_CHARS} printable characters of "
            "ASCII, such as a UUID.",
            code="invalid_idempotency_key",
        )
    return found[0]


KEYED_LEASES = 1.5
"""The number of leases for which the owner of a request may be silent: as many as it takes until all that it held is
free.
"""

QUIET_SECONDS = 1.0
"""How often a waiting request looks for itself: a death is not announced, and announcements may be lost."""

REPLAYED = (b"idempotent-replayed", b"true")


class IdempotentCreate(Claim):
    """The claim of a request with a key."""

    def __init__(self, service: Service, exchange: Exchange, requests: KeyedRequests, request: Keyed) -> None:
        self._service, self._exchange, self._requests, self._request = service, exchange, requests, request
        self._owner = service.store.token()
        self.waited = False
        """Whether another one made it meanwhile."""
        self._kept: bool | None = None
        """Whether it is to be stored, once that is known, and as what."""
        self._calls = self._calls_before = 0
        """The numbers of calls with a possible effect that were begun here, and by earlier owners."""
        self.begin_call = self._begin_call
        self.failed = True
        """Whether it failed; true until its success is known."""
        self._driver: Driver | None = None

    def runs(self, driver: Driver) -> None:
        self._driver = driver

    async def name(self, id: str, *, kept: bool = True) -> str:
        prefix, own = id[:-HEX_DIGITS], id[-HEX_DIGITS:]
        self.digits = self.digits or own
        if not await self._requests.name(self._request, self._owner, self.digits, kept=kept):
            raise taken_over()
        self._kept = self.lasts = kept
        return prefix + self.digits

    async def take(self, receive: Receive, leaving: Callable[[], bool]) -> FoundRequest:
        """Take it, or wait until it is made; its state then. Raises ApiError, StoreUnavailable, ClientGone."""
        taken = await self._requests.take(self._request, self._owner)
        if taken.found is FoundRequest.THEIRS:
            taken = await self._wait(receive, leaving)
        self._calls_before = taken.calls
        if taken.found is FoundRequest.MINE and taken.digits:
            self.digits = taken.digits
            if await self._requests.is_stored(self._request.keys.tenant, taken.digits):
                await self._requests.end(self._request, self._owner, made=True)
                taken = TakenRequest(FoundRequest.MADE, taken.digits)
        if taken.found is FoundRequest.MADE:
            self.made = taken.digits
        return taken.found

    async def _wait(self, receive: Receive, leaving: Callable[[], bool]) -> TakenRequest:
        """The request's state, once nobody else makes it. Raises ApiError, StoreUnavailable, ClientGone."""
        self.waited = True
        async with self._service.store.listening.channel(self._requests.channel(self._request)) as listener:
            try:
                with watching(receive, listener.wake) as watcher:
                    async with asyncio.timeout(self._service.settings.request_seconds):
                        while (
                            taken := await self._requests.take(self._request, self._owner)
                        ).found is FoundRequest.THEIRS:
                            if watcher.done():
                                raise ClientGone
                            if leaving():
                                raise stopping()
                            await listener.messages(QUIET_SECONDS)
            except TimeoutError:
                raise unavailable(
                    "Another request with the same Idempotency-Key is still running. Retry to get its answer."
                ) from None
        return taken

    async def renew(self) -> None:
        """Stay its owner, until this is cancelled or another one takes over."""
        staying = True
        while staying:
            await asyncio.sleep(self._requests.lease_seconds / RENEWALS)
            with suppress(StoreError):  # the next one may do; else another one makes it as the same turn
                staying = await self._requests.renew(self._request, self._owner)
        if self._driver is not None:
            self._driver.stop()

    async def _begin_call(self, approved: bool) -> MayCall:
        """See BeginCall. So many calls as were begun before may have been made: which, nobody knows, but of those that
        were approved, as each of these is used up.
        """
        self._calls += 1
        if not approved and self._calls <= self._calls_before:
            return MayCall.BEGUN
        calls, patience = max(self._calls, self._calls_before), self._service.settings.store_patience_seconds
        renew = partial(self._requests.renew, self._request, self._owner, calls=calls)
        return MayCall.YES if await retry(renew, patience, until_confirmed=True) else MayCall.NO

    async def end(self) -> None:
        """Say whether it was made, as the store has it. Raises StoreUnavailable."""
        if self._kept is None:
            made = False
        elif self._kept:
            made = await self._requests.is_stored(self._request.keys.tenant, self.digits)
        else:
            made = not self.failed and self._exchange.facts.get("client") != "gone"
        await self._requests.end(self._request, self._owner, made=made)


@asynccontextmanager
async def claim(
    service: Service,
    exchange: Exchange,
    asked: tuple[str, bytes, bytes],
    *,
    receive: Receive,
    leaving: Callable[[], bool],
) -> AsyncGenerator[Claim]:
    """The claim on what is `asked`, by route, key and body, until the end of the block; or it is `made` already.

    Waits while another one makes it, unless its client is gone, or this process is `leaving`. Raises ApiError,
    StoreUnavailable, ClientGone.
    """
    requests = KeyedRequests(service.store, lease_seconds=KEYED_LEASES * service.settings.lease_seconds)
    once = IdempotentCreate(service, exchange, requests, await requests.request(exchange.tenant, *asked))
    del asked  # its body may be megabytes
    async with service.loans.on_loan(partial(once.take, receive, leaving), once.end) as loan:
        found = loan.taken
        loan.over = found is not FoundRequest.MINE
        _note(exchange, found, waited=once.waited, taken_over=bool(once.digits))
        if loan.over:
            _refuse(found)
            exchange.answer_headers.append(REPLAYED)
            yield once
            return
        renewing = asyncio.create_task(once.renew())
        try:
            yield once
            once.failed = False
        finally:
            renewing.cancel()


def _note(exchange: Exchange, found: FoundRequest, *, waited: bool, taken_over: bool) -> None:
    if found is FoundRequest.MADE:
        outcome = "waited" if waited else "returned"
    elif found is not FoundRequest.MINE:
        outcome = "refused"
    elif waited or taken_over:
        outcome = "taken_over"
    else:
        return
    exchange.metrics.repeats.labels(outcome).inc()
    exchange.facts["repeat"] = outcome


def taken_over() -> ApiError:
    """Another request makes what this one asks for."""
    return unavailable(
        "Another request with the same Idempotency-Key has replaced this one, which was silent for too long. Send it "
        "again to get the answer."
    )


def _refuse(found: FoundRequest) -> None:
    if found is FoundRequest.OTHER:
        raise ApiError(
            422,
            "This Idempotency-Key was used with another body. Send the same body, or another key.",
            code="idempotency_key_reused",
        )
    if found is FoundRequest.UNTOLD:
        raise ApiError(
            422,
            "A request with this Idempotency-Key has made a response that is not stored ('store': false), so it can't "
            "be returned again. Send another key to make another response.",
            code="idempotency_response_not_stored",
        )
    if found is FoundRequest.FULL:
        raise unavailable("Too many requests with an Idempotency-Key are under way. Try again in a moment.")
