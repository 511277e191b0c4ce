"""Erasing: all of a tenant at once, which is no longer to be kept.

A tenant's mark comes first, so that nobody archives or returns a turn from before it any more. A turn that was on its
way then may still be written after it: `erase` again removes it, and so does each round of `expire`.
"""

from collections.abc import AsyncGenerator, Collection, Sequence

import msgspec

from store.archive.archive import Archive
from store.archive.port import MOST_DELETED, Stored
from store.backup.archiving.marks import GONE, Marks
from store.backup.archiving.merging import as_of
from store.backup.archiving.parts import Part, decode, encode
from store.backup.heads import Heads
from store.backup.upkeep.walking import ROOT, TreeParts, entries, trees_of
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, NotFound, NotTerminal, StoreError
from store.files.files import Files
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
        super().__init__(f"project {tenant} is on hold; release it first")
        self.tenant = tenant


class Erased(msgspec.Struct):
    """How many values were deleted, and how many were written anew without the turns from before the mark; how many
    trees Redis had, how many stay as they are `under_way`, and how many files there were.
    """

    deleted: int = 0
    cut: int = 0
    trees_in_redis: int = 0
    under_way: int = 0
    files: int = 0


async def erase(
    archive: Archive, marks: Marks, tenant: str, at: int, history: ConversationHistoryStore | None = None
) -> Erased:
    """Erase all that a tenant had until `at`, in µs since 1970, first in a store. Called again, it goes on.

    Raises OnHold, ArchiveUnavailable, NewerFormat where it can't be told how old turns are, ValueError for a malformed
    tenant.
    """
    if await marks.is_held(tenant):
        raise OnHold(tenant)
    await marks.erase(tenant, at)
    trees = under_way = files = 0
    if history is not None:
        files = await Files(history, archive).erase(tenant)
        trees, under_way = await forget_all(history, tenant)
        await Heads(history.server, history.keyspace, archive).raise_everywhere()
    done = await clear(archive, tenant, at)
    if not await archive.list(f"v1/{GONE}/", limit=1):
        raise ArchiveUnavailable("it lists nothing, and has the mark of the erasure: a gateway may have answered")
    done.trees_in_redis, done.under_way, done.files = trees, under_way, files
    return done


async def clear(archive: Archive, tenant: str, at: int) -> Erased:
    """Delete the turns from before a tenant's mark. Raises as `erase`."""
    done, keys, gone = Erased(), list[str](), list[TreeParts]()
    await archive.listener.tenant_erased(tenant, at)
    async for tree in trees_of(archive, tenant):
        above = None if tree.changed < at / 1e6 - CLOCK_SECONDS else await _above_later(archive, tree, at)
        if above is not None:
            await _cut(archive, tree, at, above, done)
            await archive.listener.tree_changed(tenant, tree.digits)
            continue
        keys += tree.keys
        gone.append(tree)
        if len(keys) >= MOST_DELETED:
            await _delete(archive, keys, done, gone)
            keys, gone = [], []
    keys += [entry.key async for entry in entries(archive, f"{DAMAGED}t.{tenant}/")]
    await _delete(archive, keys, done, gone)
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


async def _parts(
    archive: Archive, tree: TreeParts
) -> AsyncGenerator[tuple[int, Stored, Part | ArchiveDamaged | NewerFormat]]:
    """The parts of a tree that are there, counted or not, in order: the number, the value, and what is in it or why
    that can't be read. Raises ArchiveUnavailable.
    """
    for number in sorted(tree.parts):
        stored = await archive.get(tree.parts[number].key)
        if stored is not None:
            try:
                part: Part | ArchiveDamaged | NewerFormat = decode(stored.value)
            except (ArchiveDamaged, NewerFormat) as error:
                part = error
            yield number, stored, part


async def _above_later(archive: Archive, tree: TreeParts, at: int) -> set[str] | None:
    """The ids of turns that are continued by one from after a time; None where the tree has none of these, nor ids of
    what was deleted since. An unreadable part has none: nobody could read its turns before.
    """
    parents, later, above, gone = dict[str, str | None](), list[str](), set[str](), False
    async for _, _, part in _parts(archive, tree):
        if isinstance(part, NewerFormat):
            raise part
        if isinstance(part, Part):
            parents.update((turn.id, turn.parent) for turn in part.turns)
            later += [turn.id for turn in part.turns if turn.created > at]
            gone = gone or bool(part.gone or part.gone_trees)
    for id in later:
        parent = parents[id]
        while parent is not None and parent not in above:
            above.add(parent)
            parent = parents.get(parent)
    return above if later or (gone and tree.changed > at / 1e6) else None


async def _cut(archive: Archive, tree: TreeParts, at: int, above: Collection[str], done: Erased) -> None:
    """Rewrite the parts of a tree without turns from before a time, of which those `above` later ones leave what these
    need. A part that changed meanwhile is cut next time.
    """
    async for number, stored, part in _parts(archive, tree):
        if isinstance(part, NewerFormat):
            raise part
        if isinstance(part, ArchiveDamaged):  # `verify --repair` moves it to where it is deleted
            continue
        left = tuple(as_of(turn, at) for turn in part.turns if turn.created > at or turn.id in above)
        if left != part.turns:
            value = encode(msgspec.structs.replace(part, turns=left))
            done.cut += await archive.put(tree.parts[number].key, value, only_if=stored.etag) is not None


async def _delete(archive: Archive, keys: list[str], done: Erased, trees: Sequence[TreeParts]) -> None:
    """Delete the keys of some trees, and others."""
    for at in range(0, len(keys), MOST_DELETED):
        await archive.delete(*keys[at : at + MOST_DELETED])
    for tree in trees:
        await archive.listener.tree_changed(tree.tenant, tree.digits)
    done.deleted += len(keys)
