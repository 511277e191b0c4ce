"""The outbox: webhooks about background responses that have ended, kept until a receiver has accepted them.

The script that ends a response adds its webhook (lua/outbox.lua), so none is missing. Taking a webhook leaves it here
and only moves the time when it is due: a process that takes one and dies delays it. So each is sent at least once,
sometimes twice, and in no certain order. Never remove one before it was accepted or given up.
"""

import msgspec

from store.history.history import ConversationHistoryStore
from store.keys import ID_PREFIX, ShardKeys, id_of
from store.redis import scripts


class Webhook(msgspec.Struct, frozen=True):
    """The webhook of a response that ended at `ended`, in Unix seconds; `tries` counts this try and all before it."""

    tenant: str
    id: str
    status: str
    ended: int
    tries: int

    @property
    def member(self) -> str:
        return f"{self.tenant}/{self.id.removeprefix(ID_PREFIX)}/{self.status}"


class Outbox:
    """The outboxes of all shards of a store, which it doesn't close. All its operations raise StoreUnavailable."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        self._history, self._server, self._keyspace = history, history.server, history.keyspace

    @property
    def shards(self) -> list[ShardKeys]:
        return self._keyspace.all_shards()

    def shard(self, id: str) -> ShardKeys:
        """The shard whose outbox has a response's webhook. Raises NotFound for an impossible id."""
        return self._keyspace.shard(self._keyspace.digits(id))

    async def take(self, shard: ShardKeys, limit: int, hold_ms: int) -> list[Webhook]:
        """At most `limit` webhooks that are due, the longest due first. Nobody else gets them for `hold_ms`, 1 or more.

        Call `remove` or `later` for each by then; else it is due again.
        """
        token = self._history.token()
        _, *taken = await self._server.run(scripts.take_webhooks, shard, token=token, most=limit, hold_ms=hold_ms)
        webhooks = list[Webhook]()
        for member, tries, ended_ms in (each.decode().split(" ") for each in taken):
            tenant, digits, status = member.split("/")
            webhooks.append(Webhook(tenant, id_of(digits), status, int(ended_ms) // 1000, int(tries)))
        return webhooks

    async def later(self, webhook: Webhook, delay_ms: int) -> None:
        """Make a webhook due again after `delay_ms`, 1 or more, unless it is gone or somebody else has taken it."""
        shard, tries = self.shard(webhook.id), str(webhook.tries)
        await self._server.run(scripts.return_webhook, shard, member=webhook.member, tries=tries, delay_ms=delay_ms)

    async def remove(self, webhook: Webhook) -> None:
        """Remove a webhook that was accepted or given up; it may be gone already."""
        await self.later(webhook, 0)
