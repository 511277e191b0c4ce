"""What a store holds by its own counters, for all tenants or for one."""

from typing import NamedTuple

from store.history.history import ConversationHistoryStore
from tests.support.store.audit import LEAF_BYTES


class Usage(NamedTuple):
    """Readable responses, tombstones, trees, and bytes."""

    responses: int = 0
    tombstones: int = 0
    trees: int = 0
    bytes: int = 0


async def usage(store: ConversationHistoryStore, tenant: str | None = None) -> Usage:
    """The counters of all shards in sum."""
    rows: list[list[int]] = []
    async with store.server.operation() as operation:
        for keys in store.keyspace.all_shards():
            if tenant is None:
                row = [int(value or 0) for value in await operation.command("HMGET", keys.usage, *Usage._fields)]
                row[-1] += LEAF_BYTES * await operation.command("ZCARD", keys.leaves)
            else:
                scores = [await operation.command("ZSCORE", f"{keys.usage}:{field}", tenant) for field in Usage._fields]
                row = [int(score or 0) for score in scores]
            rows.append(row)
    return Usage(*map(sum, zip(*rows, strict=True)))
