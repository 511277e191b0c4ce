"""Refilling: a store that has lost its memory gets the trees of an archive back, the newest first.

It is never needed, as reads bring turns back one by one: it brings them back earlier. Nothing is evicted for it: a full
shard gets no more.
"""

import heapq
from collections.abc import AsyncGenerator

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.parts import decoded
from store.backup.archiving.returning import Returner
from store.backup.upkeep.walking import TreeParts, trees_of
from store.errors import ArchiveDamaged, ChainTooLong, Conflict, NewerFormat, StoreFull
from store.history.caps import room
from store.history.history import ConversationHistoryStore
from store.keys import digits_of

MOST_TREES = 100_000
"""How many trees are brought back at most, which is how many names are held to find the newest."""


class Refilled(msgspec.Struct):
    """The outcome for the trees that were asked for: how many are back, of how many turns, had no room, or could not be
    read or brought back. `wanted` is how many there are.
    """

    wanted: int = 0
    trees: int = 0
    turns: int = 0
    no_room: int = 0
    unreadable: int = 0


async def refill(
    history: ConversationHistoryStore,
    archive: Archive,
    returner: Returner,
    *,
    tenant: str | None,
    since: float = 0.0,
    most: int = MOST_TREES,
) -> AsyncGenerator[Refilled]:
    """Bring back up to `most` trees of a tenant, or of all, that were written after `since`, in seconds since 1970; how
    far it is. Raises ArchiveUnavailable, StoreUnavailable, and ValueError for a malformed tenant.
    """
    newest: list[tuple[float, str, TreeParts]] = []
    async for tree in trees_of(archive, tenant):
        if tree.changed >= since:
            heapq.heappush(newest, (tree.changed, tree.folder, tree))
        if len(newest) > most:
            heapq.heappop(newest)
    done, full = Refilled(wanted=len(newest)), set[str]()
    for _, _, tree in sorted(newest, reverse=True):
        if int(tree.shard, 16) >= history.keyspace.shards or tree.shard in full:
            done.no_room += 1
        else:
            await _bring_back(history, archive, returner, tree, done, full)
        yield done
    yield done


async def _bring_back(
    history: ConversationHistoryStore,
    archive: Archive,
    returner: Returner,
    tree: TreeParts,
    done: Refilled,
    full: set[str],
) -> None:
    """Bring back all branches of a tree, where there is room for the whole of it."""
    turns, size, parents = dict[str, bool](), 0, set[str | None]()
    try:
        for number in sorted(tree.parts):
            stored = await archive.get(tree.parts[number].key)
            part = None if stored is None else decoded(stored.value)
            for turn in part.turns if part else ():
                turns[turn.id] = turn.deleted
                size += room(turn.payload)
                parents.add(turn.parent)
        if not await _fits(history, tree, len(turns), size):
            full.add(tree.shard)
            done.no_room += 1
            return
        leaves = [digits_of(id) for id, deleted in turns.items() if id not in parents and not deleted]
        back = [await returner.bring_back(tree.tenant, leaf) for leaf in leaves]
    except StoreFull:
        full.add(tree.shard)
        done.no_room += 1
    except (ArchiveDamaged, NewerFormat, ChainTooLong, Conflict):
        done.unreadable += 1
    else:
        done.trees += any(back)
        done.turns += len(turns) if any(back) else 0


async def _fits(history: ConversationHistoryStore, tree: TreeParts, turns: int, size: int) -> bool:
    """Whether a shard takes so much more without an eviction."""
    keys = history.keyspace.all_shards()[int(tree.shard, 16)]
    async with history.server.operation() as operation:
        found = await operation.command("HMGET", keys.usage, "responses", "trees", "bytes")
    caps = history.caps
    wanted = zip((caps.responses, caps.trees, caps.bytes), (turns, 1, size), found, strict=True)
    return all(not most or int(there or 0) + more <= most for most, more, there in wanted)
