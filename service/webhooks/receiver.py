"""The receiver of webhooks: one request for one response that ended, which it accepts or doesn't.

Requests are signed as Standard Webhooks has it, which is what OpenAI's SDKs verify (`client.webhooks.unwrap`). The host
is looked up once for each, and the connection goes to the addresses that were checked (addresses.py). Never follow a
redirect, use a proxy, use more of an answer than its status, or log the URL: it may hold a secret.
"""

import asyncio
import hmac
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256

import aiohttp
import msgspec
from yarl import URL

from service.build import this_build
from service.pinned import Pinned
from service.settings.background import signing_key
from service.settings.settings import Settings, variable
from service.ssrf import ForbiddenAddress, LookUp, look_up, public_addresses
from store.jobs.outbox import Webhook

MAX_WAIT_SECONDS = 3600.0
"""The longest pause that a receiver can ask for."""

WEBHOOK_SECONDS = 10.0
"""How long a receiver may take to answer, the look-up of its host included: it has only to take the event."""

MAX_ANSWER_BYTES = 4096
ANSWER_SECONDS = 1.0
"""How much of an answer is read, and for how long, so that a receiver with a short answer sees no broken connection."""

NAME_DIGITS = 48

BROKEN = (aiohttp.ClientError, OSError, TimeoutError)

UNLIMITED = aiohttp.ClientTimeout(total=None)
"""aiohttp has no limit of its own here: ours covers the look-up, the request and the answer."""


class NotAccepted(Exception):
    """A request has failed, for a reason that may be logged."""

    def __init__(self, reason: str, *, wait_seconds: float = 0.0, final: bool = False) -> None:
        """`wait_seconds` is the pause that the receiver asked for; `final`, that it wants no more requests."""
        super().__init__(reason)
        self.wait_seconds = wait_seconds
        self.final = final


class Receiver:
    """The server at the WEBHOOK_URL of the settings, which must have one."""

    def __init__(
        self,
        settings: Settings,
        *,
        look_up: LookUp = look_up,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.time,
        seconds: float = WEBHOOK_SECONDS,
    ) -> None:
        """`look_up` finds the addresses of a host; `tls` is what to trust, by default what the system trusts; `seconds`
        is how long an answer may take.

        Raises ValueError for a URL whose host can't be one.
        """
        self.seconds = seconds
        self._url = URL(settings.webhook_url)
        self._key = signing_key(settings.webhook_secret.get_secret_value())
        self._allow_private = settings.webhook_allow_private
        self._look_up = look_up
        self._tls = tls or True
        self._now = now
        self._agent = f"harmonium/{this_build().version}"

    async def send(self, webhook: Webhook) -> None:
        """Send a webhook once, within `seconds`. Raises NotAccepted."""
        with self._failing():
            async with asyncio.timeout(self.seconds) as limit:
                connector = aiohttp.TCPConnector(
                    resolver=Pinned(await self._addresses()),
                    ssl=self._tls,
                    force_close=True,  # an open connection would outlive the look-up that permitted it
                )
                async with aiohttp.ClientSession(
                    connector=connector, timeout=UNLIMITED, auto_decompress=False
                ) as session:
                    await self._post(session, webhook, limit)

    async def reach(self) -> None:
        """Connect once, within `seconds`, and send nothing: for who asks whether webhooks could arrive. Raises
        NotAccepted.
        """
        encrypted = self._url.scheme == "https"
        with self._failing():
            async with asyncio.timeout(self.seconds):
                _, writer = await asyncio.open_connection(
                    (await self._addresses())[0],
                    self._url.port,
                    ssl=self._tls if encrypted else None,
                    server_hostname=self._url.raw_host if encrypted else None,
                )
                writer.close()

    @contextmanager
    def _failing(self) -> Generator[None]:
        """Raises NotAccepted for what keeps the block from reaching the receiver."""
        try:
            yield
        except ForbiddenAddress as error:
            raise NotAccepted(f"{error}; {variable('webhook_allow_private')} would permit it") from error
        except TimeoutError as error:
            raise NotAccepted(f"it did not answer within {self.seconds:g} s") from error
        except BROKEN as error:
            raise NotAccepted(f"it can't be reached ({type(error).__name__})") from error

    async def _addresses(self) -> list[str]:
        host, port = self._url.raw_host or "", self._url.port or 0
        if self._allow_private:
            return await self._look_up(host, port)
        return await public_addresses(host, port, self._look_up)

    async def _post(self, session: aiohttp.ClientSession, webhook: Webhook, limit: asyncio.Timeout) -> None:
        body = event_body(webhook)
        response = await session.post(
            self._url,
            data=body,
            headers=self._headers(webhook, body),
            allow_redirects=False,
            read_bufsize=MAX_ANSWER_BYTES,
        )
        try:
            if not 200 <= response.status < 300:
                wait = retry_after(response.headers.get("retry-after", ""), self._now())
                raise NotAccepted(f"it answered {response.status}", wait_seconds=wait, final=response.status == 410)
            limit.reschedule(None)  # it has accepted, and nothing that comes now can change that
            with suppress(*BROKEN, asyncio.IncompleteReadError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await response.content.readexactly(MAX_ANSWER_BYTES)
        finally:
            response.close()

    def _headers(self, webhook: Webhook, body: bytes) -> dict[str, str]:
        id, timestamp = f"wh_{_name(webhook)}", int(self._now())
        return {
            "content-type": "application/json",
            "user-agent": self._agent,
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._key, id, timestamp, body),
        }


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a request, by Standard Webhooks 1.0: HMAC-SHA256 of `id.timestamp.body`, in base64."""
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def event_type(webhook: Webhook) -> str:
    """What OpenAI's events call such an end."""
    return f"response.{webhook.status}"


def event_body(webhook: Webhook) -> bytes:
    """The event as JSON, the same whenever it is sent."""
    told = {
        "id": f"evt_{_name(webhook)}",
        "object": "event",
        "created_at": webhook.ended,
        "type": event_type(webhook),
        "data": {"id": webhook.id},
    }
    return msgspec.json.encode(told)


def retry_after(header: str, now: float) -> float:
    """For how many seconds a Retry-After asks, within MAX_WAIT_SECONDS; 0 where it makes no sense.

    It is a number of seconds or an HTTP date (RFC 9110, 10.2.3).
    """
    try:
        if header.isdecimal():
            return min(float(header), MAX_WAIT_SECONDS)
        until = parsedate_to_datetime(header).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(until - now, 0.0), MAX_WAIT_SECONDS)


def _name(webhook: Webhook) -> str:
    """What tells a response's end from all others, wherever and whenever it is told."""
    return sha256(f"{webhook.id} {event_type(webhook)}".encode()).hexdigest()[:NAME_DIGITS]
