"""Webhooks: an HTTP request to a receiver of the operator's for each background response that ended.

    due ─▶ taken ─▶ accepted: done
     ▲       ├────▶ given up: too old, or refused for good (410)
     └───────┴ not accepted, or the process that took it died

A process that takes a webhook from the outbox (store/jobs/outbox.py) holds it for longer than a delivery may take.
Every process delivers, as every process sweeps. Never take more than can be sent at once: what waits, waits there.

Requests are signed as Standard Webhooks has it, which is what OpenAI's SDKs verify (`client.webhooks.unwrap`). The host
is looked up once for each, and the connection goes to the addresses that were checked (ssrf.py). Never follow a
redirect, use a proxy, use more of an answer than its status, log the URL, as it may hold a secret, or send the text of
a response: a webhook names it, and its receiver retrieves it.
"""

import asyncio
import hmac
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Literal

import msgspec

from service.backoff import Backoff
from service.build import this_build
from service.engine.servers.pool import read_bounded
from service.features.webhooks.settings import WebhookSettings, signing_key
from service.logs import event
from service.outgoing import WebAddress, asking, lookups_of
from service.settings.sources import variable
from service.ssrf import PRIVATELY, ForbiddenAddress, LookUp, look_up, public_addresses
from store.errors import StoreError
from store.jobs.outbox import Outbox, Webhook
from store.keys import ShardKeys

MAX_WAIT_SECONDS = 3600.0
"""The longest pause that a receiver can ask for."""

MAX_ANSWER_BYTES = 4096
ANSWER_SECONDS = 1.0
"""How much of an answer is read, and for how long, so that a receiver with a short answer sees no broken connection."""

logger = logging.getLogger(__name__)

RETRY_SECONDS = 86_400.0
"""How long a webhook that is not accepted is sent again."""

Outcome = Literal["delivered", "failed", "given_up"]
"""The outcome of a delivery; one that failed is tried again."""


class NotAccepted(Exception):
    """A request has failed, for a reason that may be logged."""

    def __init__(self, reason: str, *, wait_seconds: float = 0.0, final: bool = False) -> None:
        """`wait_seconds` is the pause that the receiver asked for; `final`, that it wants no more requests."""
        super().__init__(reason)
        self.wait_seconds = wait_seconds
        self.final = final


@dataclass(eq=False)
class Receiver:
    """The server at the WEBHOOK_URL of the settings, which must have one."""

    settings: WebhookSettings
    look_up: LookUp = look_up
    """Finds the addresses of a host."""
    tls: ssl.SSLContext | None = None
    """The context to trust, by default the system's."""
    seconds: float = 10.0
    """How long an answer may take, the look-up of the host included: it has only to take the event."""

    def __post_init__(self) -> None:
        """Raises ValueError for a URL whose host can't be one."""
        self._address = WebAddress.of(self.settings.webhook_url.removeprefix(PRIVATELY))
        self._privately = self.settings.webhook_url.startswith(PRIVATELY)
        self._key = signing_key(self.settings.webhook_secret.get_secret_value())
        self._agent = f"harmonium/{this_build().version}"

    async def send(self, webhook: Webhook) -> None:
        """Send a webhook once, within `seconds`. Raises NotAccepted."""
        body, id, timestamp = event_body(webhook), f"wh_{_name(webhook)}", int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": self._agent,
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._key, id, timestamp, body),
        }
        async with self._reaching() as (limit, addresses):
            found = lookups_of(addresses)
            async with asking("POST", self._address, headers, body, addresses=found, tls=self.tls) as connection:
                answer = connection.answer
                if not 200 <= answer.status < 300:
                    wait = retry_after(answer.headers.get("retry-after", ""), time.time())
                    raise NotAccepted(f"it answered {answer.status}", wait_seconds=wait, final=answer.status == 410)
                limit.reschedule(None)  # it has accepted, and nothing that comes now can change that
                with suppress(OSError):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        await read_bounded(connection.read, MAX_ANSWER_BYTES)

    async def reach(self) -> None:
        """Connect once, within `seconds`, and send nothing, to see if webhooks could arrive. Raises NotAccepted."""
        peer = self._address.target.peer
        tls, name = (self.tls or True, peer.certified) if peer.tls else (None, None)
        async with self._reaching() as (_, addresses):
            _, writer = await asyncio.open_connection(addresses[0], peer.port, ssl=tls, server_hostname=name)
            writer.close()

    @asynccontextmanager
    async def _reaching(self) -> AsyncGenerator[tuple[asyncio.Timeout, list[str]]]:
        """A block of at most `seconds`, with the receiver's addresses. Raises NotAccepted where it isn't reached."""
        host, port = self._address.host, self._address.port
        find = self.look_up(host, port) if self._privately else public_addresses(host, port, self.look_up)
        try:
            async with asyncio.timeout(self.seconds) as limit:
                yield limit, await find
        except ForbiddenAddress as error:
            raise NotAccepted(f"{error}; {PRIVATELY} before {variable('webhook_url')} would permit it") from error
        except TimeoutError as error:
            raise NotAccepted(f"it did not answer within {self.seconds:g} s") from error
        except OSError as error:
            raise NotAccepted(f"it can't be reached ({type(error).__name__})") from error


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a request, by Standard Webhooks 1.0: HMAC-SHA256 of `id.timestamp.body`, in base64."""
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def event_type(webhook: Webhook) -> str:
    """The type of OpenAI's event for such an end."""
    return f"response.{webhook.status}"


def event_body(webhook: Webhook) -> bytes:
    """The event as JSON, the same whenever it is sent."""
    about = {"created_at": webhook.ended, "type": event_type(webhook), "data": {"id": webhook.id}}
    return msgspec.json.encode({"id": f"evt_{_name(webhook)}", "object": "event"} | about)


def retry_after(header: str, now: float) -> float:
    """The seconds for which a Retry-After asks, within MAX_WAIT_SECONDS; 0 where it makes no sense.

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
    """The name of a response's end: unlike that of any other, and the same wherever and whenever it is computed."""
    return sha256(f"{webhook.id} {event_type(webhook)}".encode()).hexdigest()[:48]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryTiming:
    """How long a deliverer waits for what."""

    poll_seconds: float = 1.0
    """How often a shard is asked for what is due, on average. An end in this process needn't wait for that."""

    polled_shards: int = 8
    """How many shards in which nothing is due are asked in that time: with more, each is asked more seldom."""

    store_away: Backoff = Backoff(2.0, 30.0)
    """How long a shard that can't be asked is left alone."""

    retry: Backoff = Backoff(2.0, 3600.0)
    """The pauses before a webhook that was not accepted is sent again."""

    margin_seconds: float = 5.0
    """How long a webhook is held beyond the time for its delivery: enough to note the outcome."""

    leave_seconds: float = 2.0
    """The time that an ending process leaves to deliveries under way. A cancelled one is sent again after its hold."""


@dataclass(eq=False)
class Deliverer:
    """Takes what is due from the outboxes of all shards to the receiver."""

    outbox: Outbox
    receiver: Receiver
    retry_seconds: float
    """For how long after the end of its response a webhook is tried again."""
    count: Callable[[Outcome], None] = field(default=lambda outcome: None, kw_only=True)
    """Told of each delivery."""
    timing: DeliveryTiming = field(default=DeliveryTiming(), kw_only=True)
    at_once: int = field(default=32, kw_only=True)
    """How many deliveries may be under way."""

    def __post_init__(self) -> None:
        self._hold_ms = round((self.receiver.seconds + self.timing.margin_seconds) * 1000)
        self._room = asyncio.Semaphore(self.at_once)
        self._due = {shard.outbox: asyncio.Event() for shard in self.outbox.shards}
        self._under_way: set[asyncio.Task[None]] = set()

    def wake(self, id: str) -> None:
        """A response has ended in this process: its webhook is due now."""
        self._due[self.outbox.shard(id).outbox].set()

    async def deliver_for_ever(self) -> None:
        """Deliver what is due, until cancelled. No failure of the store or of the receiver ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                for shard in self.outbox.shards:
                    group.create_task(self._serve(shard))
        finally:
            if self._under_way:
                _, late = await asyncio.wait(self._under_way, timeout=self.timing.leave_seconds)
                for task in late:
                    task.cancel()
                await asyncio.gather(*late, return_exceptions=True)

    async def _serve(self, shard: ShardKeys) -> None:
        """Deliver what is due in a shard, one after the other; then again when woken, or at the next poll."""
        due, failures, idle = self._due[shard.outbox], 0, 0
        seconds = self.timing.poll_seconds
        polls = Backoff(seconds, seconds * max(1.0, len(self._due) / self.timing.polled_shards))
        while True:
            due.clear()
            try:
                if await self._deliver_next(shard):
                    failures = idle = 0
                    continue
                failures, idle = 0, idle + 1
                pause = polls.seconds(idle)
            except StoreError as error:
                if not failures:
                    event(logger, logging.WARNING, "webhooks can't be read", reason=str(error))
                failures, idle = failures + 1, idle + 1
                pause = self.timing.store_away.seconds(failures)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await due.wait()

    async def _deliver_next(self, shard: ShardKeys) -> bool:
        """Begin to send what is due next, once there is room for it; whether anything was."""
        await self._room.acquire()
        taken: list[Webhook] = []
        try:
            taken = await self.outbox.take(shard, 1, self._hold_ms)
        finally:
            if not taken:
                self._room.release()
        for webhook in taken:
            task = asyncio.create_task(self._deliver(webhook))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return bool(taken)

    async def _deliver(self, webhook: Webhook) -> None:
        """Send a webhook, and store the outcome; where that fails, it is sent again when its hold is over."""
        about = {"tenant": webhook.tenant, "response_id": webhook.id}
        facts = about | {"event_type": event_type(webhook), "tries": webhook.tries}
        try:
            try:
                await self.receiver.send(webhook)
            except NotAccepted as error:
                await self._put_off(webhook, error, facts)
            else:
                self.count("delivered")
                event(logger, logging.INFO, "webhook delivered", **facts)
                await self.outbox.remove(webhook)
        except StoreError as error:
            event(logger, logging.WARNING, "outcome of a webhook not stored", **facts, reason=str(error))
        except Exception:
            logger.exception("webhook failed by a bug")
        finally:
            self._room.release()

    async def _put_off(self, webhook: Webhook, error: NotAccepted, facts: dict[str, str | int]) -> None:
        left = webhook.ended + self.retry_seconds - time.time()
        if error.final or left <= 0:
            await self.outbox.remove(webhook)
            self.count("given_up")
            event(logger, logging.WARNING, "webhook given up", **facts, reason=str(error))
            return
        delay = min(left, max(self.timing.retry.seconds(webhook.tries), error.wait_seconds))
        self.count("failed")
        event(logger, logging.INFO, "webhook not accepted", **facts, reason=str(error), retry_seconds=delay)
        await self.outbox.later(webhook, max(1, round(delay * 1000)))
