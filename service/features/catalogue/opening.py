"""The catalogue that the settings name, and the work that it makes."""

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from service.features.catalogue.describing import describe
from service.features.catalogue.settings import CatalogueSettings
from service.logs import event
from service.ports import Chore
from service.settings.core import CoreSettings
from service.settings.group import with_extra
from service.settings.units import DAY_SECONDS
from service.store_away import tolerate
from store.archive.archive import Archive
from store.archive.port import Bounds
from store.catalogue.catalogue import Catalogue, CatalogueDatabase
from store.catalogue.cataloguing import SHARDS, Cataloguer
from store.errors import Unsupported
from store.history.history import ConversationHistoryStore

logger = logging.getLogger(__name__)

FOLDER, FILE = "archive", "catalogue.db"
"""Below the data folder, where no URL names another folder."""

FORM = "4"
"""The form of rows that this release makes: rows of another one are made anew."""

TIDY_SECONDS = 60.0
"""How long words that were deleted may stay in the index, unseen."""

FRESH_SECONDS = 600.0
"""How long ago a catalogue was compared with the archive where a process that starts leaves that: an older copy of it
was longer ago. After that one process compares them once a day.
"""

OTHER_WORDS = "another process makes the catalogue with another HARMONIUM_CATALOGUE_WORDS: set the same for all"
FOREIGN = "the catalogue was another archive's and is made anew: each archive needs one of its own"

TOLD = 1_000
"""After how many trees it is said how far the catalogue is."""


def open_cataloguer(settings: CoreSettings, archive: Archive, archive_url: str) -> Cataloguer:
    """The keeper of the catalogue of an archive, which is not connected to yet. Raises Unsupported where a package is
    missing.
    """
    own = CatalogueSettings.of(settings)
    url = own.catalogue_url or (archive_url if archive_url.startswith(("sqlite", "postgres")) else "sqlite")
    catalogue = Catalogue(_database(url, settings.data_dir))
    describing = partial(describe, all_words=own.catalogue_words == "all")
    return Cataloguer(archive, catalogue, describing, f"{own.catalogue_words} {FORM}")


def _database(url: str, data: Path) -> CatalogueDatabase:
    if url.startswith("postgres"):
        try:
            from store.catalogue.postgres import PostgresCatalogue
        except ImportError as error:
            raise Unsupported(f"a catalogue in Postgres needs asyncpg: {with_extra('postgres')}") from error
        return PostgresCatalogue(url, Bounds())
    from store.catalogue.sqlite import SqliteCatalogue

    folder = Path(unquote(url.partition("://")[2])) if "://" in url else data / FOLDER
    return SqliteCatalogue(folder / FILE, Bounds().request_seconds)


def catalogue_chores(store: ConversationHistoryStore, archive: Archive) -> Iterator[Chore]:
    """The work of the catalogue of an archive beside requests."""
    if isinstance(archive.listener, Cataloguer):
        yield Chore("cataloguing", partial(catalogue_for_ever, store, archive.listener))


async def catalogue_for_ever(store: ConversationHistoryStore, cataloguer: Cataloguer) -> None:
    """Have the catalogue whole, and nothing in its index that was deleted, until cancelled. What others made in another
    form is made anew once, at the start: else two would do so in turn.
    """
    fresh, left, told = FRESH_SECONDS, list[str](), ""
    while True:
        with tolerate(store, "the catalogue is still being built"):
            if about := await cataloguer.about():
                age = time.time() - await cataloguer.looked_at()
                whole, foreign = await cataloguer.whole()
                if age > (fresh if whole else FRESH_SECONDS) or foreign or (whole != about and fresh == FRESH_SECONDS):
                    left = SHARDS  # until it is done, also where the archive is away meanwhile
                elif whole not in ("", about, told):
                    told = whole
                    event(logger, logging.WARNING, OTHER_WORDS)
                if foreign:
                    event(logger, logging.WARNING, FOREIGN)
                if left := left or [*await cataloguer.unread()]:
                    await make_whole(cataloguer, left)
                fresh, left = DAY_SECONDS, []
            while await cataloguer.catalogue.tidy():
                pass
        await asyncio.sleep(TIDY_SECONDS * random.uniform(0.5, 1.0))


async def make_whole(cataloguer: Cataloguer, only: Sequence[str] = SHARDS, *, anew: bool = False) -> int:
    """Have the rows of some shards as the archive has their trees; how many trees were looked into."""
    made, told, unread = 0, 0, await cataloguer.unread()
    async for made in cataloguer.make_whole(only, anew=anew):
        if made - told >= TOLD:
            told = made
            event(logger, logging.INFO, "the catalogue of the archive is being built", conversations=made)
    if made:
        event(logger, logging.INFO, "the catalogue of the archive is complete", conversations=made)
    if (left := await cataloguer.unread()) and left != unread:
        message = "the list lacks shards of the archive that can't be read"
        event(
            logger,
            logging.ERROR,
            message,
            shards=" ".join(str(int(shard, 16)) for shard in left),
            remedy="`harmonium archive verify` says why",
        )
    return made
