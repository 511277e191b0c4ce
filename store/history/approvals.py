"""Approvals: the calls that a response asked somebody to approve. Each approval is used up once.

An approval is known by the response that asked for it, by its number there, and by a digest of the call.
Forks, other processes and clients that keep their history themselves may all send the same one: the script gives it
to one response (lua/use_up.lua). An approval that isn't noted, or not any more, can't be used: each bound errs on that
side. Never part of a backup: after a restore a used approval could be used again.
"""

from collections.abc import Mapping
from enum import Enum

from store.errors import NotFound
from store.history.caps import DAY_SECONDS
from store.history.history import ConversationHistoryStore
from store.redis import scripts

MOST_APPROVALS = 4096
"""The most approvals of a tenant that a shard notes, used ones among them: 1 MB. New ones replace the oldest."""

APPROVAL_SECONDS = 30.0 * DAY_SECONDS
"""How long an approval may be used where conversations never expire; elsewhere as long as one may be idle."""


class Use(Enum):
    """Whether an approval can be used, as lua/use_up.lua says it."""

    NEW = "ok"  # it wasn't before
    AGAIN = "again"  # this run has used it up before
    BEGUN = "begun"  # an earlier run of this response has used it up
    GONE = "used"  # another response has used it up
    UNKNOWN = "unknown"  # nobody asked for it, it was asked for another call, or it is too old


class StoredApprovals:
    """Note approvals, and use them up."""

    def __init__(self, history: ConversationHistoryStore, *, most: int = MOST_APPROVALS) -> None:
        self._history = history
        self._most = most

    @property
    def _kept_ms(self) -> int:
        return round((self._history.caps.idle_seconds or APPROVAL_SECONDS) * 1000)

    async def ask(self, tenant: str, id: str, asked: Mapping[int, str]) -> None:
        """Note the approvals that a response asks for: hex digests by numbers below 0x10000. A retry changes nothing.

        Raises NotFound for an id that can't be, StoreUnavailable.
        """
        history = self._history
        keys = history.keyspace.turn(tenant, id)
        await history.server.run(
            scripts.ask,
            keys,
            asked=" ".join(f"{number:04x}/{digest}" for number, digest in asked.items()),
            kept_ms=self._kept_ms,
            most=self._most,
        )

    async def look(self, tenant: str, id: str, number: int, digest: str, *, by: str = "") -> Use:
        """Whether an approval can be used; BEGUN where an earlier run of `by` has used it. Raises StoreUnavailable."""
        return await self._use(tenant, id, number, digest, by, "")

    async def use_up(self, tenant: str, id: str, number: int, digest: str, *, by: str, run: str) -> Use:
        """Use an approval up for a `run` of the response `by`; returns how that went. The mark is then as safe as a
        stored turn. Raises StoreUnconfirmed where it isn't in time, StoreUnavailable.
        """
        use = await self._use(tenant, id, number, digest, by, run)
        if use in (Use.NEW, Use.AGAIN):
            await self._history.confirmer.prove(self._history.keyspace.turn(tenant, id).shard)
        return use

    async def _use(self, tenant: str, id: str, number: int, digest: str, by: str, run: str) -> Use:
        history = self._history
        by = by and history.keyspace.digits(by)
        try:
            keys = history.keyspace.turn(tenant, id)
        except NotFound:
            return Use.UNKNOWN
        (word,) = await history.server.run(
            scripts.use_up, keys, number=f"{number:04x}", digest=digest, by=by, run=run, kept_ms=self._kept_ms
        )
        return Use(word.decode())
