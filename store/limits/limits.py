"""Limits: a tenant's work begins where it is within all of them, with what it may take reserved, and is settled later.

    admit ─▶ the work ─▶ settle

What a limit is and how it is counted is in lua/limits.lua. What is reserved has a time until which its work counts as
under way: whoever does it says so again and again (`hold`), and what nobody did anything for any more is `due`, to be
settled by whoever finds that. All of a tenant's are in one shard, so one script looks at all of them.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys, checked_tenant, id_of
from store.redis import scripts

What = Literal["requests", "tokens", "parallel"]
Window = Literal["minute", "month", ""]

MOST_DUE = 100
"""How many reservations of a shard are looked at once."""

MOST_SETTLED = 100
"""How many pieces of a tenant's work are settled at once: about a millisecond of the server's."""


class Check(NamedTuple):
    """A limit: at most so many requests or tokens in a window, or so many at once. `scope` is what they are counted in,
    within a tenant: letters, digits, `_` and `-`.
    """

    scope: str
    what: What
    window: Window
    limit: int

    def with_one_more(self) -> "Check":
        """A limit of how many there are at once for one that begins as another ends."""
        return self._replace(limit=self.limit + 1) if self.what == "parallel" and self.limit else self


class Left(NamedTuple):
    """What is left of a limit, and the seconds until all of it is again."""

    amount: int
    seconds: float


class Refused(NamedTuple):
    """Which of the limits keeps work from beginning for longest, for how many seconds, None for ever; and how much it
    asks of that.
    """

    check: int
    seconds: float | None
    asked: int


class Admission(NamedTuple):
    """What is left of each limit; and whether work was `refused`, so that none was taken from."""

    left: list[Left]
    refused: Refused | None = None


class Spent(NamedTuple):
    """The tokens that a piece of work has read and written."""

    reads: int
    writes: int


class Unspent(IntEnum):
    """How work is settled whose tokens aren't known."""

    UNKNOWN = -1  # all that was reserved for it counts
    NEVER_BEGAN = -2  # nothing does


class Over(NamedTuple):
    """Work that is over: its id, what it took, and by which token that was reserved; '' for any."""

    id: str
    spent: Spent | Unspent
    token: str = ""


class Due(NamedTuple):
    """A reservation whose work may be over: whose, of which id."""

    tenant: str
    id: str


_LEFT = msgspec.json.Decoder(list[Left])


class Limits:
    """The limits of a store."""

    def __init__(self, history: ConversationHistoryStore, *, held_seconds: float, usual_tokens: int) -> None:
        """Work is due after `held_seconds` unless more is said, and counts as under way for twice as long. It is
        thought to write `usual_tokens` as long as nobody knows what the tenant's usually does.
        """
        self.history = history
        self.held_seconds = held_seconds
        self._usual = usual_tokens

    async def admit(
        self,
        tenant: str,
        id: str,
        checks: Sequence[Check],
        *,
        reads: int,
        writes: int,
        token: str = "",
        over: Sequence[Over] = (),
    ) -> Admission:
        """Let work begin that reads and writes so many tokens at most, and reserve that for whoever has this `token`;
        or refuse it. `id` has the form of a response's. To do it again for the same id changes nothing, but whose it
        is. What is `over` is settled before, as by `settle_all`. Raises StoreUnavailable.
        """
        shard, history = self._shard(tenant), self.history
        script = partial(
            scripts.admit,
            tenant=checked_tenant(tenant),
            over=self._over(over),
            digits=history.keyspace.digits(id),
            token=token,
            checks=msgspec.json.encode(checks),
            reads=reads,
            writes=writes,
            usual=self._usual,
            held_ms=round(self.held_seconds * 1000),
        )
        until = history.clocks.until
        async with history.server.operation() as operation:
            word, *details, left = await history.clocks.bound(until, script)(operation, shard)
        shown = _LEFT.decode(left)
        if word == b"ok":
            return Admission(shown)
        check, us, asked = map(int, details)
        return Admission(shown, Refused(check, None if us < 0 else us / 1e6, asked))

    async def settle(self, tenant: str, id: str, spent: Spent | Unspent) -> bool:
        """Count what work has taken, in the place of what was reserved for it; whether anything was, and still is.
        Raises StoreUnavailable.
        """
        return await self.settle_all(tenant, [Over(id, spent)]) == 1

    async def settle_all(self, tenant: str, over: Sequence[Over]) -> int:
        """Settle what is over, at most MOST_SETTLED; for how much of it something still was reserved.
        Raises StoreUnavailable.
        """
        async with self.history.server.operation() as operation:
            _, found = await scripts.settle_admitted(
                operation, self._shard(tenant), tenant=checked_tenant(tenant), over=self._over(over)
            )
        return int(found)

    async def hold(self, tenant: str, held: Sequence[str]) -> None:
        """Say that work is still under way, by its ids. Raises StoreUnavailable."""
        async with self.history.server.operation() as operation:
            await scripts.hold_admitted(
                operation,
                self._shard(tenant),
                tenant=checked_tenant(tenant),
                held=" ".join(map(self.history.keyspace.digits, held)),
                held_ms=round(self.held_seconds * 1000),
            )

    async def due(self) -> list[Due]:
        """What nobody has said anything of for too long, at most MOST_DUE of each shard. Raises StoreUnavailable."""
        found = list[Due]()
        for shard in self.history.keyspace.all_shards():
            async with self.history.server.operation() as operation:
                seconds, micros = await operation.command("TIME", at=shard.reservations)
                members: list[bytes] = await operation.command(
                    *("ZRANGEBYSCORE", shard.reservations, "-inf", int(seconds) * 1000 + int(micros) // 1000),
                    *("LIMIT", 0, MOST_DUE),
                )
            for tenant, digits in (member.decode().split("/") for member in members):
                found.append(Due(tenant, id_of(digits)))
        return found

    def _over(self, over: Sequence[Over]) -> bytes:
        """What is over as the scripts read it."""
        if len(over) > MOST_SETTLED:
            raise ValueError(f"{len(over)} are more than {MOST_SETTLED} pieces of work")
        digits = self.history.keyspace.digits
        return msgspec.json.encode(
            [(digits(id), *(spent if isinstance(spent, Spent) else (spent, 0)), token) for id, spent, token in over]
        )

    def _shard(self, tenant: str) -> ShardKeys:
        keyspace = self.history.keyspace
        return keyspace.all_shards()[crc32(tenant.encode()) % keyspace.shards]
