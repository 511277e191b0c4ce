"""Erasing: all of a tenant at once, which is no longer to be kept.

A tenant's mark comes first, so that nobody archives or returns a turn from before it any more. A turn that was on its
way then may still be written after it: `erase` again removes it, and so does each round of `expire`.
"""

from contextlib import suppress

import msgspec

from store.archive.archive import Archive
from store.archive.port import MOST_DELETED
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import Marks
from store.backup.archiving.merging import News
from store.backup.archiving.parts import Index
from store.backup.heads import Heads
from store.backup.upkeep.walking import ROOT, TreeParts, entries, trees_of
from store.errors import ArchiveDamaged, NotFound, NotTerminal, StoreError
from store.history.delete import forget_tree
from store.history.history import ConversationHistoryStore
from store.history.listing import TreeListing

DAMAGED = f"{ROOT}damaged/"
"""The folder to which unreadable values are moved."""

CLOCK_SECONDS = 86_400.0
"""By how much an archive's clock may be wrong, which with SQLite is that of the process: a value written longer before
a mark has no turn from after it.
"""

TREES_AT_ONCE = 100
"""How many trees of a tenant are named at once."""


class OnHold(StoreError):
    """All of a tenant is on hold, and is not erased."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"tenant {tenant} is on hold; release it first")
        self.tenant = tenant


class Erased(msgspec.Struct):
    """How many values were deleted, and how many trees with later turns were cut; how many trees Redis had, and how
    many stay as they are `under_way`.
    """

    deleted: int = 0
    cut: int = 0
    trees_in_redis: int = 0
    under_way: int = 0


async def erase(
    archive: Archive, marks: Marks, tenant: str, at: int, history: ConversationHistoryStore | None = None
) -> Erased:
    """Erase all that a tenant had until `at`, in µs since 1970, first in a store. Called again, it goes on.

    Raises OnHold, ArchiveUnavailable, NewerFormat where it can't be told how old turns are, ValueError for a malformed
    tenant.
    """
    if await marks.held(tenant):
        raise OnHold(tenant)
    await marks.erase(tenant, at)
    trees = under_way = 0
    if history is not None:
        trees, under_way = await forget_all(history, tenant)
        await Heads(history.server, history.keyspace, archive).raise_everywhere()
    done = await clear(archive, tenant, at)
    done.trees_in_redis, done.under_way = trees, under_way
    return done


async def clear(archive: Archive, tenant: str, at: int) -> Erased:
    """Delete the turns from before a tenant's mark. Raises as `erase`."""
    done, keeping, keys = Erased(), Keeping(archive), list[str]()
    async for tree in trees_of(archive, tenant):
        if tree.changed >= at / 1e6 - CLOCK_SECONDS and await _is_later(keeping, tree, at):
            with suppress(ArchiveDamaged):  # `verify --repair` moves what is damaged to where it is deleted
                done.cut += await _cut(keeping, tree, at)
            continue
        keys += tree.keys
        if len(keys) >= MOST_DELETED:
            await _delete(archive, keys, done)
            keys = []
    keys += [entry.key async for entry in entries(archive, f"{DAMAGED}t.{tenant}/")]
    await _delete(archive, keys, done)
    return done


async def forget_all(history: ConversationHistoryStore, tenant: str) -> tuple[int, int]:
    """Delete all trees of a tenant that Redis has; how many, and how many have a run in them, which stay. Raises
    StoreUnavailable.
    """
    listing, forgotten, under_way = TreeListing(history, tenant), 0, 0
    while some := await listing.some(TREES_AT_ONCE):
        for place, _ in some:
            keys = history.keyspace.keys(tenant, place.digits)
            try:
                await history.server.run(forget_tree, keys, token=history.token(), caps=history.caps)
                forgotten += 1
            except NotTerminal:
                under_way += 1
            except NotFound:  # it went by itself
                continue
    return forgotten, under_way


async def _is_later(keeping: Keeping, tree: TreeParts, at: int) -> bool:
    """Whether a tree has turns from after a time. A value that can't be read has none: nobody could read it before."""

    async def look(scan: Scan) -> bool:
        await scan.all()
        scan.check()
        return any(entry.created > at for entry in scan.index.entries.values())

    return await keeping.look(tree.tenant, tree.digits, look, listed=tree.listed)


async def _cut(keeping: Keeping, tree: TreeParts, at: int) -> bool:
    """Delete the turns of a tree from before a time, of which those above later ones leave what these need; whether
    there were any.
    """
    old: dict[str, bool] = {}

    async def news(index: Index) -> News:
        nonlocal old
        entries = index.entries.items()
        old = {id: True for id, each in entries if each.created <= at and (each.messages or not each.deleted)}
        return News(gone=old)

    await keeping.change(tree.tenant, tree.digits, news)
    return bool(old)


async def _delete(archive: Archive, keys: list[str], done: Erased) -> None:
    for at in range(0, len(keys), MOST_DELETED):
        await archive.delete(*keys[at : at + MOST_DELETED])
    done.deleted += len(keys)
