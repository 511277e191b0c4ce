"""Once a day: what is too old in the archive of a store goes, whoever of those who share it is first."""

from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import expire
from store.backup.upkeep.memory import Memory
from store.errors import ArchiveUnavailable

DAY_MS = 86_400_000


async def expire_daily(archive: StoreArchive, days: float, now: float) -> int | None:
    """Delete for good what nobody has changed for so many days; `now` in seconds since 1970. How many trees went; None
    where somebody has done that today. Raises StoreUnavailable, ArchiveUnavailable.
    """
    server, keyspace = archive.history.server, archive.history.keyspace
    mark = keyspace.all_shards()[0].archive_swept
    await archive.open()
    async with server.operation() as operation:
        if not await operation.command("SET", mark, "", "NX", "PX", DAY_MS):
            return None
    memory, gone, after = Memory(server, keyspace), 0, ""
    try:
        while True:
            done = await expire(archive.archive, memory, days, now=now, after=after)
            gone, after = gone + done.deleted, done.after
            if not after:
                return gone
    except ArchiveUnavailable:  # somebody has to go on
        async with server.operation() as operation:
            await operation.command("DEL", mark)
        raise
