"""Works on an archive with a catalogue until it is killed: `listing DEED REDIS PREFIX FOLDER`; it prints a line once it
begins. The deeds: `archive` adds, changes and deletes conversations and archives them, `whole` makes the catalogue
anew, `restore` restores a backup, `import` imports its turns as a client does and archives them, and `expire` has all
go that is old.
"""

import asyncio
import random
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from service.features.catalogue.describing import describe
from store.archive.opening import open_archive
from store.backup.archiving.store_archive import StoreArchive
from store.backup.turns import bring_in
from store.backup.upkeep.backup_file import reading, turns_of
from store.backup.upkeep.expiring import expire
from store.backup.upkeep.reconciling import Reconciler
from store.backup.upkeep.restore import Restore
from store.backup.upkeep.walking import trees_of
from store.catalogue.catalogue import Catalogue
from store.catalogue.cataloguing import Cataloguer
from store.catalogue.sqlite import SqliteCatalogue
from store.errors import ArchiveUnavailable, NotFound, ParentNotFound
from tests.support.archive.kept import DAY, Kept, begun
from tests.support.archive.patience import PATIENT
from tests.support.store.backups import RELEASE
from tests.support.store.sample import TENANT, grow

BACKUP, FILE = "backup", "catalogue.db"
WORDS = "words"


async def listed_at(url: str, prefix: str, folder: Path) -> tuple[Kept, Cataloguer]:
    """A store, its archive and its catalogue in a folder."""
    kept = await begun(url, prefix, open_archive(f"sqlite://{folder}/archive", folder, PATIENT))
    catalogue = Catalogue(SqliteCatalogue(folder / "archive" / FILE, PATIENT.request_seconds))
    kept.store.elsewhere = kept.turns
    cataloguer = kept.archive.listener = Cataloguer(kept.archive, catalogue, partial(describe, all_words=True), WORDS)
    return kept, cataloguer


async def archive_all(kept: Kept) -> None:
    """Archive all that is due, as a service does that takes the place of one that died."""
    reconciler = Reconciler(kept.store, kept.archive)
    archive = StoreArchive(
        kept.store,
        kept.archive,
        reconcile=reconciler.shard,
        after_seconds=0,
        lease_seconds=0.2,
        watched_seconds=0.2,
        later_seconds=0.05,
    )
    due = True
    while due:
        await archive.archive_due()
        due = [tree for shard in kept.store.keyspace.all_shards() for tree in await kept.archiver.due(shard, 1)]


async def archive(kept: Kept) -> None:
    """Add some, change some, delete some, and archive all that is due."""
    ids = [id for number in range(4) for id in await grow(kept.store, f"new {number}", "its answer")]
    await archive_all(kept)
    await grow(kept.store, "more", parent=ids[1])
    await kept.store.forget(TENANT, ids[3])
    await kept.store.forget_tree(TENANT, ids[4])
    await archive_all(kept)


async def import_all(kept: Kept, path: Path) -> None:
    """Import the turns of a backup, each behind the one that it continues, and archive them; some go again before."""
    async with reading(path) as (file, _):
        async for tree in trees_of(file, TENANT):
            turns = [turn async for turn in turns_of(file, tree)]
            if random.random() < 0.2:
                with suppress(NotFound):
                    await kept.store.forget_tree(TENANT, turns[0].id)
            for turn in turns:
                await bring_in(kept.store, TENANT, turn)
            if random.random() < 0.1:
                await archive_all(kept)
    await archive_all(kept)


async def work(deed: str, url: str, prefix: str, folder: Path) -> None:
    """Do a deed again and again."""
    kept, cataloguer = await listed_at(url, prefix, folder)
    print("begins", flush=True)
    while True:
        with suppress(ArchiveUnavailable, ParentNotFound):  # others change or delete the same, or it changes hands
            match deed:
                case "archive":
                    await archive(kept)
                case "whole":
                    async for _ in cataloguer.make_whole(anew=True):
                        pass
                case "import":
                    await import_all(kept, folder / BACKUP)
                case "restore":
                    async for _ in Restore(kept.store, kept.archive).run(folder / BACKUP, release=RELEASE):
                        pass
                case _:
                    await expire(kept.archive, kept.memory, 30, now=time.time() + random.choice((31, 200)) * DAY)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
