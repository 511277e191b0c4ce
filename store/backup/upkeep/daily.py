"""Once a day: the first process of those that share an archive deletes the trees that are too old in it.

    v1/store/looked-through    when that was done last, in seconds since 1970

A clock that has jumped must not delete an archive. So nothing goes on a day that comes too long after the last one, or
before it. If the clock goes on from there for a day, it is taken for true.
"""

from store.archive.archive import Archive
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import expire
from store.backup.upkeep.memory import Memory
from store.errors import ArchiveUnavailable, ClockDoubted

DAY_SECONDS = 86_400
DAY_MS = DAY_SECONDS * 1000

LOOKED_KEY = "v1/store/looked-through"
GAP_SECONDS = 3 * DAY_SECONDS
"""The longest time between two looks through an archive for the clock to be believed."""

BACK_SECONDS = 3600
"""By how much clocks may differ."""


async def expire_daily(archive: StoreArchive, days: float, now: float) -> int | None:
    """Delete trees that nobody changed for so many days; `now` in seconds since 1970. Returns how many trees went; None
    where somebody has done that today. Raises StoreUnavailable, ArchiveUnavailable, ClockDoubted.
    """
    server, keyspace = archive.history.server, archive.history.keyspace
    mark = keyspace.all_shards()[0].archive_swept
    await archive.open()
    async with server.operation() as operation:
        if not await operation.command("SET", mark, "", "NX", "PX", DAY_MS):
            return None
    memory, gone, after = Memory(server, keyspace), 0, ""
    try:
        await _look(archive.archive, round(now))
        while True:
            done = await expire(archive.archive, memory, days, now=now, after=after)
            gone, after = gone + done.deleted, done.after
            if not after:
                return gone
    except ArchiveUnavailable:  # somebody has to go on
        async with server.operation() as operation:
            await operation.command("DEL", mark)
        raise


async def _look(archive: Archive, now: int) -> None:
    """Note that the archive is looked through now. Raises ClockDoubted."""
    stored = await archive.get(LOOKED_KEY)
    await archive.put(LOOKED_KEY, str(now).encode(), only_if=stored and stored.etag)  # a clash: somebody else has
    if stored is None or not stored.value.isdigit():
        return
    passed = now - int(stored.value)
    if not -BACK_SECONDS <= passed <= GAP_SECONDS:
        raise ClockDoubted(passed)
