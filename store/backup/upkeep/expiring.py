"""Expiring: trees that nobody has changed for a number of days go from an archive for good.

A tree is emptied first, by a write that clashes with whoever archives it at the same time. The empty value goes days
later, when nobody replaces it any more. Trees that Redis has stay, and so do trees on hold.
"""

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.marks import Marks
from store.backup.archiving.parts import Part, decoded, encoded
from store.backup.upkeep.erasing import DAMAGED, clear, tenants_erased
from store.backup.upkeep.memory import Memory
from store.backup.upkeep.walking import TreeParts, entries, trees
from store.errors import ArchiveDamaged, NewerFormat
from store.keys import digits_of

DAY_SECONDS = 86_400
AT_ONCE = 10_000
"""How many trees one call looks at: ten pages of keys, and one read of each tree that is too old."""


class Expired(msgspec.Struct):
    """The outcome for trees that are too old: how many were deleted, stay as Redis has them, are on hold, or can't be
    read. `after` is where to go on, and empty at the end.
    """

    looked: int = 0
    deleted: int = 0
    in_memory: int = 0
    held: int = 0
    unreadable: int = 0
    after: str = ""


async def expire(
    archive: Archive, memory: Memory, days: float, *, now: float, after: str = "", at_once: int = AT_ONCE
) -> Expired:
    """Delete trees that nobody changed for so many days, among the next `at_once` behind a place; `now` in seconds
    since 1970. The first call also deletes the rest of tenants that were erased.

    Any number of processes may do it at once. Raises ArchiveUnavailable, StoreUnavailable, ValueError for no days.
    """
    if days <= 0:
        raise ValueError(f"{days=} must be positive")
    old, marks, done = now - days * DAY_SECONDS, Marks(archive), Expired()
    if not after:
        await _clear(archive, marks, old)
    held: dict[str, bool] = {}
    async for tree in trees(archive, after=after):
        if not isinstance(tree, TreeParts):
            continue
        if done.looked == at_once:
            return done
        done.looked += 1
        done.after = tree.folder[:-1] + "0"  # behind all that is in the folder
        if tree.changed >= old:
            continue
        if tree.tenant not in held:
            held[tree.tenant] = await marks.held(tree.tenant)
        if held[tree.tenant]:
            done.held += 1
        else:
            await _expire(archive, memory, tree, done)
    done.after = ""
    return done


async def _clear(archive: Archive, marks: Marks, old: float) -> None:
    """Delete the rest of tenants that were erased, and damaged values that were moved away long ago."""
    for tenant in await tenants_erased(archive):
        if not await marks.held(tenant):
            await clear(archive, tenant, await marks.erased(tenant))
    async for entry in entries(archive, DAMAGED):
        if entry.changed < old and not await marks.held(entry.key.split("/")[2].removeprefix("t.")):
            await archive.delete(entry.key)


async def _expire(archive: Archive, memory: Memory, tree: TreeParts, done: Expired) -> None:
    etag = None
    turns: list[str] = []
    tops: list[str] = []
    for number in sorted(tree.parts):
        stored = await archive.get(tree.parts[number].key)
        if stored is None:
            continue
        try:
            part = decoded(stored.value)
        except (ArchiveDamaged, NewerFormat):
            done.unreadable += 1
            return
        if number == 0:
            etag = stored.etag
        turns += [digits_of(turn.id) for turn in part.turns]
        tops += [digits_of(turn.id) for turn in part.turns if turn.parent is None]
    tops = tops or turns[:1]
    if await memory.has_any(tree.tenant, tops):
        done.in_memory += 1
        return
    if etag is not None and turns:
        emptied = await archive.put(f"{tree.folder}0", encoded(Part()), only_if=etag)
        if emptied is None:  # somebody has it archived just now
            return
        await archive.delete(*[key for key in tree.keys if key != f"{tree.folder}0"])
        for root in tops:  # trees that came back meanwhile are archived anew
            if await memory.has_any(tree.tenant, [root]):
                await memory.note_tree(tree.tenant, root)
    else:
        await archive.delete(*tree.keys)
    done.deleted += 1
