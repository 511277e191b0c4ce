"""Expiring: trees that nobody has changed for a number of days go from an archive for good.

A tree is emptied first, by a write that clashes with whoever archives it at the same time. The empty value goes days
later, when nobody replaces it any more. Trees that Redis has stay, and so do trees on hold.

Of what was deleted the ids stay, also in an emptied tree. They keep it deleted where an older copy of Redis comes back,
or an export of it, and go once no such copy is kept any more, however long or short a time trees stay.

Once a day the first process of those that share an archive does it:

    v1/store/looked-through    when that was done last, in seconds since 1970

A clock that has jumped must not delete an archive. So the store's time counts, and nothing goes where a process has
another one, nor on a day that comes too long after the last one, or before it. If the store's clock goes on from there
for a day, and no process has an earlier time, it is taken for true.
"""

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.keeping import Keeping, Scan
from store.backup.archiving.marks import GONE, Marks
from store.backup.archiving.parts import Part, encode
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.erasing import DAMAGED, clear
from store.backup.upkeep.memory import Memory
from store.backup.upkeep.walking import TreeParts, trees
from store.backup.upkeep.walking import entries as entries_of
from store.backup.upkeep.walking import marks as marks_of
from store.errors import ArchiveUnavailable, ClockDoubted, StoreUnavailable
from store.keys import digits_of

DAY_SECONDS = 86_400

LOOKED_KEY = "v1/store/looked-through"
GAP_SECONDS = 3 * DAY_SECONDS
"""The longest time between two looks through an archive for the clock to be believed."""

BACK_SECONDS = 3600
"""By how much clocks may differ."""

EMPTY_DAYS = 90
"""After how many days without a change an empty tree goes: the age of the oldest copy of Redis that may come back."""

EMPTY_LOOK_DAYS = 7
"""For how many days from then on a tree is read to see whether it is empty: its key doesn't say so, and to read all
trees each day would be too much. A service that stood still for so long leaves some kilobytes behind.
"""


async def expire_daily(archive: StoreArchive, days: float, *, now: float, own: float) -> int | None:
    """Delete trees that nobody changed for so many days, with 0 only empty ones; `now` is the store's time and `own`
    that of this process, in seconds since 1970. Returns how many trees went; None where somebody has done that today.
    Raises StoreUnavailable, ArchiveUnavailable, ClockDoubted.
    """
    await archive.open()
    values, stored = archive.archive, await archive.archive.get(LOOKED_KEY)
    is_first = stored is None or not stored.value.isdigit()
    if abs(now - own) > BACK_SECONDS:
        if stored is not None and not is_first and int(stored.value) > own + BACK_SECONDS:  # that time is doubted, too
            await values.put(LOOKED_KEY, b"0", only_if=stored.etag)
        raise ClockDoubted(f"the clocks of this machine and of the store differ by {abs(now - own):,.0f} s")
    passed = DAY_SECONDS if stored is None or is_first else round(now) - int(stored.value)
    if 0 <= passed < DAY_SECONDS:
        return None
    etag = await values.put(LOOKED_KEY, str(round(now)).encode(), only_if=stored and stored.etag)
    if etag is None:  # somebody else looks through it now
        return None
    if not -BACK_SECONDS <= passed <= GAP_SECONDS:
        ago = f"{passed / DAY_SECONDS:,.1f} days ago"
        raise ClockDoubted(f"the archive was looked through {ago} by the store's clock, which may have jumped")
    try:
        memory = Memory(archive.history.server, archive.history.keyspace)
        return (await expire(values, memory, days, now=now)).deleted
    except (ArchiveUnavailable, StoreUnavailable):  # somebody has to go on
        await values.put(LOOKED_KEY, b"" if stored is None else stored.value, only_if=etag)
        raise


class Expired(msgspec.Struct):
    """The outcome of a round: how many trees there are; how many of those that are too old were deleted, stay as Redis
    has them, are on hold, or can't be read.
    """

    looked: int = 0
    deleted: int = 0
    in_memory: int = 0
    held: int = 0
    unreadable: int = 0


async def expire(archive: Archive, memory: Memory, days: float, *, now: float) -> Expired:
    """Delete trees that nobody changed for so many days, with 0 only empty ones, and the rest of tenants that were
    erased; `now` in seconds since 1970. A tree goes only if its tenant is not on hold at that moment.

    Any number of processes may do it at once. Raises ArchiveUnavailable, StoreUnavailable, ValueError for fewer days.
    """
    if days < 0:
        raise ValueError(f"{days=} must not be negative")
    old, marks, done = now - days * DAY_SECONDS if days else 0.0, Marks(archive), Expired()
    await _clear(archive, marks, old)
    held = set[str]()
    async for tree in trees(archive):
        if not isinstance(tree, TreeParts):
            continue
        done.looked += 1
        may_be_empty = EMPTY_DAYS <= (now - tree.changed) / DAY_SECONDS < EMPTY_DAYS + EMPTY_LOOK_DAYS
        if tree.changed >= old and not may_be_empty:
            continue
        if tree.tenant in held or await marks.is_held(tree.tenant):
            held.add(tree.tenant)
            done.held += 1
        else:
            await _expire(archive, memory, tree, done, before=old if tree.changed < old else 0.0, now=now)
    return done


async def _clear(archive: Archive, marks: Marks, old: float) -> None:
    """Delete the rest of tenants that were erased, and damaged values that were moved away long ago."""
    async for tenant, _ in marks_of(archive, GONE):
        if not await marks.is_held(tenant):
            await clear(archive, tenant, await marks.erased_until(tenant))
    async for entry in entries_of(archive, DAMAGED):
        if entry.changed < old and not await marks.is_held(entry.key.split("/")[2].removeprefix("t.")):
            await archive.delete(entry.key)


async def _expire(
    archive: Archive, memory: Memory, tree: TreeParts, done: Expired, *, before: float, now: float
) -> None:
    """Delete a tree, unless a turn of it was made after a time: its writer may have had a clock that was behind."""

    async def read(scan: Scan) -> Scan:
        await scan.all()
        return scan

    scan = await Keeping(archive).look(tree.tenant, tree.digits, read, listed=tree.listed)
    entries, left = scan.index.entries, Part(gone=scan.index.gone, gone_trees=scan.index.gone_trees)
    done.unreadable += bool(scan.faults)
    if scan.faults or any(entry.created >= before * 1e6 for entry in entries.values()):
        return
    if not entries and left != Part() and now - tree.changed < EMPTY_DAYS * DAY_SECONDS:
        return
    tops = [digits_of(id) for id, entry in entries.items() if entry.parent is None] or [*map(digits_of, entries)][:1]
    if await memory.nodes(tree.tenant, tops):
        done.in_memory += 1
        return
    # first, as whoever dies behind the next step is followed by nobody who looks at the tree
    await archive.listener.tree_goes(tree.tenant, tree.digits)
    if tops:
        emptied = await archive.put(f"{tree.folder}0", encode(left), only_if=scan.etags[0])
        if emptied is None:  # somebody has it archived just now
            await archive.listener.tree_changed(tree.tenant, tree.digits)
            return
        await archive.delete(*[key for key in tree.keys if key != f"{tree.folder}0"])
        for root in tops:  # trees that came back meanwhile are archived anew
            if await memory.nodes(tree.tenant, [root]):
                await memory.note_tree(tree.tenant, root)
    else:
        await archive.delete(*tree.keys)
    await archive.listener.tree_changed(tree.tenant, tree.digits)
    done.deleted += 1
