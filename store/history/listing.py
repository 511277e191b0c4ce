"""Listing: a tenant's conversations over all shards, in the order in which they began.

The order never changes, so a page behind a conversation always has the same conversations, except for deleted ones.
Each shard has a list of its own, read some at a time (page.lua) and merged. Listing doesn't count as use.
"""

from collections.abc import Iterable
from typing import NamedTuple

from store import codec
from store.errors import ConversationNotFound
from store.history.history import ConversationHistoryStore
from store.history.merging import Merged, ScoredDigits
from store.history.read import mget
from store.keys import ShardKeys, conversation_id, shard_of
from store.redis import scripts


class ListedConversation(NamedTuple):
    """A conversation in a list: its id, and its JSON, or None where it is unknown by now."""

    id: str
    shown: bytes | None


class Listing:
    """A list of conversations that is read from a place on, some at a time. Made by `Conversations.listing`."""

    def __init__(self, history: ConversationHistoryStore, tenant: str, *, after: str | None, ascending: bool) -> None:
        self._history = history
        self._tenant = tenant
        self._after = after
        self._ascending = ascending
        self._merged: Merged | None = None

    async def some(self, most: int) -> list[ListedConversation]:
        """The next ones, at most so many; none once all were read."""
        if self._merged is None:
            shards = self._history.keyspace.all_shards()
            self._merged = Merged(shards, self._read, ascending=self._ascending, after=await self._place())
        return await self._shown(await self._merged.some(most))

    async def _place(self) -> ScoredDigits | None:
        """The place behind which the list begins."""
        if self._after is None:
            return None
        keys = self._history.keyspace.conversation(self._tenant, self._after)
        async with self._history.server.operation() as operation:
            began = await operation.command("ZSCORE", keys.shard.conversations_of(self._tenant), keys.digits)
        if began is None:
            raise ConversationNotFound(self._after)
        return ScoredDigits(int(float(began)), keys.digits)

    async def _read(self, shard: ShardKeys, behind: ScoredDigits | None, most: int) -> tuple[list[ScoredDigits], bool]:
        return await page(
            self._history, shard, "conversations", self._tenant, behind, ascending=self._ascending, most=most
        )

    async def _shown(self, places: list[ScoredDigits]) -> list[ListedConversation]:
        """The conversations at these places, with their JSON."""
        keys = self._history.keyspace
        blobs: dict[str, bytes | None] = {}
        for digits in by_shard(place.digits for place in places if place.known):
            names = [keys.keys(self._tenant, each).key("response") for each in digits]
            async with self._history.server.operation() as operation:
                blobs |= zip(digits, await mget(operation, names), strict=True)
        listed: list[ListedConversation] = []
        for place in places:
            blob = blobs.get(place.digits)
            shown = None if blob is None else (await codec.unpack_response(blob))[0]
            listed.append(ListedConversation(conversation_id(place.digits), shown))
        return listed


async def page(
    history: ConversationHistoryStore,
    shard: ShardKeys,
    name: str,
    tenant: str,
    behind: ScoredDigits | None,
    *,
    ascending: bool,
    most: int,
) -> tuple[list[ScoredDigits], bool]:
    """The next places of a tenant's list in a shard, `conversations` or `trees`, and whether there are more. Raises
    StoreUnavailable.
    """
    async with history.server.operation() as operation:
        _, places, more = await scripts.page(
            operation,
            shard,
            of=name,
            tenant=tenant,
            score="0" if behind is None else str(behind.score),
            after="" if behind is None else behind.digits,
            ascending=int(ascending),
            most=most,
            idle_us=history.caps.idle_us,
        )
    return list(map(ScoredDigits.of, places.decode().split())), bool(int(more))


def by_shard(digits: Iterable[str]) -> Iterable[list[str]]:
    """The digits, grouped by shard."""
    found: dict[int, list[str]] = {}
    for each in digits:
        found.setdefault(shard_of(each), []).append(each)
    return found.values()
