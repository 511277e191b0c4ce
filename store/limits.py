"""Limits: a tenant's work begins if it is within all of them. Its most tokens are reserved, and settled at the end.

    admit ─▶ the work ─▶ settle

lua/limits.lua defines a limit and how it is counted. A reservation has a time until which its work counts as under
way. The process that does the work extends it (`hold`); a reservation that nobody extends is `due`, and any process
may settle it. All of a tenant's are in one shard, so one script looks at all of them.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys, checked_tenant, id_of
from store.redis import scripts
from store.spent import Over, Spent, Unspent

What = Literal["requests", "tokens", "parallel"]
Window = Literal["minute", "month", ""]

MOST_DUE = 100

MOST_SETTLED = 100
"""The most pieces of a tenant's work that are settled at once: about a millisecond of the server's."""


class Check(NamedTuple):
    """A limit: at most so many requests or tokens in a window, or so many at once. `scope` names the group in which
    they are counted, within a tenant: letters, digits, `_` and `-`.
    """

    scope: str
    what: What
    window: Window
    limit: int

    def with_one_more(self) -> "Check":
        """The limit for work that begins as another ends: one more at once."""
        return self._replace(limit=self.limit + 1) if self.what == "parallel" and self.limit else self


class Left(NamedTuple):
    """The amount left of a limit, and the seconds until it is whole again."""

    amount: int
    seconds: float


class RefusedByLimit(NamedTuple):
    """The limit that refuses work for longest (the index of its check), the seconds until it doesn't, None for ever,
    and the amount that the work asks of it.
    """

    check: int
    seconds: float | None
    asked: int


class LimitsLeft(NamedTuple):
    """The amounts left of each limit; if the work was `refused`, nothing was taken from any."""

    left: list[Left]
    refused: RefusedByLimit | None = None


class DueReservation(NamedTuple):
    """A reservation whose work may be over: its tenant and its id."""

    tenant: str
    id: str


_LEFT = msgspec.json.Decoder(list[Left])


class Limits:
    def __init__(self, history: ConversationHistoryStore, *, held_seconds: float, usual_tokens: int) -> None:
        """Work is due after `held_seconds` without `hold`, and counts as under way for twice as long. It is assumed to
        write `usual_tokens` until the tenant's own average is known.
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
    ) -> LimitsLeft:
        """Admit work that reads and writes so many tokens at most, and reserve these for the holder of `token`; or
        refuse it. `id` has the form of a response's. Again for the same id it only changes the holder. The work in
        `over` is settled before, as by `settle_all`. Raises StoreUnavailable.
        """
        word, *details, left = await self.history.server.run(
            scripts.admit,
            self._shard(tenant),
            tenant=checked_tenant(tenant),
            over=self._over(over),
            digits=self.history.keyspace.digits(id),
            token=token,
            checks=msgspec.json.encode(checks),
            reads=reads,
            writes=writes,
            usual=self._usual,
            held_ms=round(self.held_seconds * 1000),
        )
        shown = _LEFT.decode(left)
        if word == b"ok":
            return LimitsLeft(shown)
        check, us, asked = map(int, details)
        return LimitsLeft(shown, RefusedByLimit(check, None if us < 0 else us / 1e6, asked))

    async def settle(self, tenant: str, id: str, spent: Spent | Unspent) -> bool:
        """Count the tokens of work in the place of its reservation, if it still has one. Raises StoreUnavailable."""
        return await self.settle_all(tenant, [Over(id, spent)]) == 1

    async def settle_all(self, tenant: str, over: Sequence[Over]) -> int:
        """Settle MOST_SETTLED pieces of work at most; how many still had a reservation. Raises StoreUnavailable."""
        return await self._settle(tenant, over, ())

    async def hold(self, tenant: str, held: Sequence[str]) -> None:
        """Extend the reservations of work that is still under way, by its ids. Raises StoreUnavailable."""
        await self._settle(tenant, (), held)

    async def due(self) -> list[DueReservation]:
        """The reservations that nobody extended in time, at most MOST_DUE of each shard. Raises StoreUnavailable."""
        found = list[DueReservation]()
        for shard in self.history.keyspace.all_shards():
            async with self.history.server.operation() as operation:
                now = await operation.now_us(shard.reservations) // 1000
                members: list[bytes] = await operation.command(
                    *("ZRANGEBYSCORE", shard.reservations, "-inf", now), *("LIMIT", 0, MOST_DUE)
                )
            for tenant, digits in (member.decode().split("/") for member in members):
                found.append(DueReservation(tenant, id_of(digits)))
        return found

    async def _settle(self, tenant: str, over: Sequence[Over], held: Sequence[str]) -> int:
        _, found = await self.history.server.run(
            scripts.settle_admitted,
            self._shard(tenant),
            tenant=checked_tenant(tenant),
            over=self._over(over),
            held=" ".join(map(self.history.keyspace.digits, held)),
            held_ms=round(self.held_seconds * 1000),
        )
        return int(found)

    def _over(self, over: Sequence[Over]) -> bytes:
        if len(over) > MOST_SETTLED:
            raise ValueError(f"{len(over)} are more than {MOST_SETTLED} pieces of work")
        digits = self.history.keyspace.digits
        return msgspec.json.encode(
            [(digits(id), *(spent if isinstance(spent, Spent) else (spent, 0)), token) for id, spent, token in over]
        )

    def _shard(self, tenant: str) -> ShardKeys:
        keyspace = self.history.keyspace
        return keyspace.all_shards()[keyspace.place_of(tenant)]
