"""A tenant's background responses that wait or run, over all shards: what nobody has to know an id for.

Each shard is asked once, and for no more than is wanted of all of them. To look is no use of a tree.
"""

import asyncio
from typing import NamedTuple

from store.history.history import ConversationHistoryStore
from store.history.merging import SHARDS_AT_ONCE
from store.keys import ShardKeys, id_of
from store.redis import scripts


class UnderWay(NamedTuple):
    """A response that has yet to end. `created` is in µs since 1970."""

    digits: str
    parent: str | None
    status: str
    created: int
    size: int
    """The bytes of its response, as it was accepted."""

    @property
    def id(self) -> str:
        """Its id, as clients see it."""
        return id_of(self.digits)


async def under_way(history: ConversationHistoryStore, tenant: str, most: int) -> tuple[list[UnderWay], bool]:
    """At most so many of what a tenant has under way, the newest first, and whether that is all. Raises
    StoreUnavailable.
    """
    shards = history.keyspace.all_shards()
    found: list[UnderWay] = []
    whole = True
    for at in range(0, len(shards), SHARDS_AT_ONCE):
        some = (_of_shard(history, shard, tenant, most) for shard in shards[at : at + SHARDS_AT_ONCE])
        for rows, all_of_them in await asyncio.gather(*some):
            found += rows
            whole = whole and all_of_them
    found.sort(key=lambda each: (-each.created, each.digits))
    return found[:most], whole and len(found) <= most


async def _of_shard(
    history: ConversationHistoryStore, shard: ShardKeys, tenant: str, most: int
) -> tuple[list[UnderWay], bool]:
    async with history.server.operation() as operation:
        _, whole, *rows = await scripts.jobs_of(operation, shard, tenant=tenant, most=most)
    return [_row(row.decode()) for row in rows], bool(int(whole))


def _row(text: str) -> UnderWay:
    digits, parent, status, created, size = text.split(" ")
    return UnderWay(digits, None if parent == "-" else parent, status, int(created), int(size))
