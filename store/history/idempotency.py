"""Requests with an Idempotency-Key: the owner of each, and its response id, for all who share a store.

The first owner makes the response, under a lease, and records the response id before it stores the response. A
repeat finds that id, also after a crash: an owner that takes over from a dead one uses the same id, so the turn is
stored once (append.lua), or found. Only digests are stored, never a key or a body, each tenant's apart. Never part
of a backup: restored responses were never requested here.
"""

import asyncio
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from store.codec import THREAD_FROM_BYTES
from store.history.caps import DAY_SECONDS
from store.history.history import ConversationHistoryStore
from store.keys import HEX_DIGITS, SHARD_DIGITS, TurnKeys
from store.redis import scripts

BODY_BYTES = 16
"""The bytes of a body's digest."""


class FoundRequest(Enum):
    """The state of a request with a key, as the script says it to a caller."""

    MINE = "mine"  # the caller has to make it
    THEIRS = "theirs"  # another owner makes it
    MADE = "made"  # it was made, and stored
    UNTOLD = "untold"  # it was made, or is, and is not stored
    OTHER = "other"  # the key came with another body
    FULL = "full"  # no other request can be recorded, as all recorded ones are being made


class Keyed(NamedTuple):
    """A request with a key: the keys of its record, and the digest of its body."""

    keys: TurnKeys
    body: str


class TakenRequest(NamedTuple):
    """The state of a request, and the digits of its turn, or under which it has to be stored."""

    found: FoundRequest
    digits: str = ""
    calls: int = 0
    """The calls with a possible effect that the former owner has begun."""


class KeyedRequests:
    """Take requests with a key, renew their leases, end them."""

    def __init__(
        self,
        history: ConversationHistoryStore,
        *,
        lease_seconds: float = 10.0,
        kept_seconds: float = DAY_SECONDS,
        most: int = 10_000,
    ) -> None:
        """An owner that doesn't renew for `lease_seconds` counts as dead. A request is known for `kept_seconds` after
        its end, and `most` of a tenant in a shard: new ones replace those that ended first.
        """
        if not 0 < lease_seconds < kept_seconds:
            raise ValueError(f"{lease_seconds=} must be positive, and shorter than {kept_seconds=}")
        self.lease_seconds = lease_seconds
        self._history = history
        self._lease_ms, self._kept_ms = max(1, round(lease_seconds * 1000)), max(1, round(kept_seconds * 1000))
        self._most = most

    async def request(self, tenant: str, route: str, key: bytes, body: bytes) -> Keyed:
        name = blake2b(b"%d %b %b" % (len(route), route.encode(), key), digest_size=HEX_DIGITS // 2).hexdigest()
        keyspace = self._history.keyspace
        shard = int(name[-8:], 16) % keyspace.placed
        keys = keyspace.keys(tenant, f"{shard:02x}{name[SHARD_DIGITS:]}")
        if len(body) > THREAD_FROM_BYTES:
            return Keyed(keys, await asyncio.to_thread(_digest, key, body))
        return Keyed(keys, _digest(key, body))

    async def take(self, request: Keyed, owner: str) -> TakenRequest:
        """The state of a request, which `owner`, a token, takes if nobody has it. Raises StoreUnavailable."""
        word, *known = await self._history.server.run(
            scripts.take_keyed,
            request.keys,
            body=request.body,
            owner=owner,
            lease_ms=self._lease_ms,
            kept_ms=self._kept_ms,
            most=self._most,
        )
        digits = known[0].decode() if known else ""
        return TakenRequest(FoundRequest(word.decode()), digits, int(known[1]) if len(known) > 1 else 0)

    async def name(self, request: Keyed, owner: str, digits: str, *, kept: bool) -> bool:
        """Record the turn or conversation that will be stored, if it is `kept`; False where another one has the lease.

        When it returns, the record is as safe as a stored turn. Raises StoreUnconfirmed, StoreUnavailable.
        """
        if not await self._keep(request, owner, named=digits, kept="yes" if kept else "no"):
            return False
        await self._history.confirmer.prove(request.keys.shard)
        return True

    async def renew(self, request: Keyed, owner: str, *, calls: int = 0) -> bool:
        """Renew the owner's lease; False where another one has it. Before a call that may have an effect, `calls` is
        the number of such calls with this one, and once `renew` returns it is as safe as a stored turn. Raises
        StoreUnconfirmed, StoreUnavailable.
        """
        stays = await self._keep(request, owner, calls=calls)
        if stays and calls:
            await self._history.confirmer.prove(request.keys.shard)
        return stays

    async def end(self, request: Keyed, owner: str, *, made: bool) -> None:
        """End a request: it was `made`, or else nothing was, and the next one may make it. Raises StoreUnavailable."""
        await self._keep(request, owner, ends="made" if made else "unmade")

    async def is_stored(self, tenant: str, digits: str) -> bool:
        """Whether there is, or was, a turn or a conversation with these digits. Raises StoreUnavailable."""
        node = self._history.keyspace.keys(tenant, digits).key("node")
        async with self._history.server.operation() as operation:
            if await operation.command("EXISTS", node):
                return True
        return await self._history.elsewhere.find(tenant, digits) is not None

    def channel(self, request: Keyed) -> str:
        """The channel that says that a request has ended, in any way."""
        return request.keys.key("keyed")

    async def _keep(
        self, request: Keyed, owner: str, *, ends: str = "", named: str = "", kept: str = "", calls: int = 0
    ) -> bool:
        (word,) = await self._history.server.run(
            scripts.keep_keyed,
            request.keys,
            owner=owner,
            ends=ends,
            named=named,
            kept=kept,
            calls=calls,
            lease_ms=self._lease_ms,
            kept_ms=self._kept_ms,
        )
        return word == b"ok"


def _digest(key: bytes, body: bytes) -> str:
    """A body's digest. It reveals nothing of the body without the key, which is stored nowhere."""
    return blake2b(body, digest_size=BODY_BYTES, key=blake2b(key, person=b"body").digest()).hexdigest()
