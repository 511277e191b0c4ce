"""Erasing: all of a tenant at once, which is no longer to be kept.

A tenant's mark comes first, so that nobody archives or returns a turn from before it any more. A turn that was on its
way then may still be written after it: `erase` again removes it, and so does each round of `expire`.
"""

import msgspec

from store.archive.archive import Archive
from store.archive.port import MOST_DELETED
from store.backup.archiving.marks import GONE, Marks
from store.backup.archiving.parts import decoded, encoded
from store.backup.upkeep.walking import ROOT, TreeParts, entries, trees_of
from store.errors import ArchiveDamaged, NotFound, NotTerminal, StoreError
from store.history.delete import forget_tree
from store.history.history import ConversationHistoryStore
from store.history.listing import TreeListing

DAMAGED = f"{ROOT}damaged/"
"""The folder to which unreadable values are moved."""

CLOCK_SECONDS = 300.0
"""By how much an archive's clock may be wrong: a value written longer before a mark has no turn from after it."""

TREES_AT_ONCE = 100
"""How many trees of a tenant are named at once."""


class OnHold(StoreError):
    """All of a tenant is on hold, and is not erased."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"tenant {tenant} is on hold; release it first")
        self.tenant = tenant


class Erased(msgspec.Struct):
    """How many values were deleted, and how many were written anew without the turns from before the mark."""

    deleted: int = 0
    cut: int = 0


async def erase(archive: Archive, marks: Marks, tenant: str, at: int) -> Erased:
    """Erase all that a tenant had until `at`, in µs since 1970. May be called again, and then goes on.

    Raises OnHold, ArchiveUnavailable, NewerFormat where it can't be told how old turns are, ValueError for a malformed
    tenant.
    """
    if await marks.held(tenant):
        raise OnHold(tenant)
    await marks.erase(tenant, at)
    return await clear(archive, tenant, at)


async def clear(archive: Archive, tenant: str, at: int) -> Erased:
    """Delete the turns from before a tenant's mark. Raises as `erase`."""
    done = Erased()
    keys: list[str] = []
    async for tree in trees_of(archive, tenant):
        if not (tree.changed < at / 1e6 - CLOCK_SECONDS) and await _has_later(archive, tree, at):
            await _cut(archive, tree, at, done)
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
                async with history.server.operation() as operation:
                    await forget_tree(operation, keys, token=history.token(), caps=history.caps)
                forgotten += 1
            except NotTerminal:
                under_way += 1
            except NotFound:  # it went by itself
                continue
    return forgotten, under_way


async def tenants_erased(archive: Archive) -> list[str]:
    """The tenants with a mark that says so. Raises ArchiveUnavailable."""
    prefix = f"{ROOT}{GONE}/t."
    return [entry.key.removeprefix(prefix) async for entry in entries(archive, f"{ROOT}{GONE}/")]


async def _has_later(archive: Archive, tree: TreeParts, at: int) -> bool:
    """Whether a tree has a turn from after a time. An unreadable part has none: nobody could read its turns before."""
    for entry in tree.parts.values():
        stored = await archive.get(entry.key)
        try:
            if stored is not None and any(turn.created > at for turn in decoded(stored.value).turns):
                return True
        except ArchiveDamaged:
            continue
    return False


async def _cut(archive: Archive, tree: TreeParts, at: int, done: Erased) -> None:
    """Rewrite the parts of a tree without turns from before a time. A part that changed meanwhile is cut next time."""
    for entry in tree.parts.values():
        stored = await archive.get(entry.key)
        if stored is None:
            continue
        try:
            part = decoded(stored.value)
        except ArchiveDamaged:  # `verify --repair` moves it to where it is deleted
            continue
        later = tuple(turn for turn in part.turns if turn.created > at)
        if len(later) < len(part.turns):
            value = encoded(msgspec.structs.replace(part, turns=later))
            done.cut += await archive.put(entry.key, value, only_if=stored.etag) is not None


async def _delete(archive: Archive, keys: list[str], done: Erased) -> None:
    for at in range(0, len(keys), MOST_DELETED):
        await archive.delete(*keys[at : at + MOST_DELETED])
    done.deleted += len(keys)
