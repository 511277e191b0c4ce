"""The catalogue that the settings name, and the work that it makes."""

import asyncio
import logging
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from urllib.parse import unquote

from service.features.catalogue.describing import describe
from service.features.catalogue.settings import CatalogueSettings
from service.logs import event
from service.ports import Chore
from service.settings.core import CoreSettings
from service.settings.units import DAY_SECONDS
from service.store_away import tolerate
from store.archive.archive import Archive
from store.archive.port import Bounds
from store.backup.ownership import ID_KEY
from store.catalogue.cataloguing import Cataloguer, CatalogueStanding
from store.catalogue.rows import Catalogue
from store.errors import Unsupported
from store.history.history import ConversationHistoryStore

logger = logging.getLogger(__name__)

FOLDER, FILE = "archive", "catalogue.db"
"""Below the data folder, where no URL names another folder."""

FORM = "1"
"""The form of rows that this release makes: rows of another one are made anew."""

TIDY_SECONDS = 60.0
"""How long words that were deleted may stay in the index, unseen."""

OTHERS = {
    CatalogueStanding.OTHER_COPY: (
        "another machine has a list of its own of this archive: each has what its own processes archived. Name one "
        "Postgres for all of them with HARMONIUM_CATALOGUE_URL, and restart them"
    ),
    CatalogueStanding.OTHER_WORDS: (
        "another process makes the list of the archive with another HARMONIUM_SEARCH_WORDS, or is of another release: "
        "set the same for all, and restart them"
    ),
}
"""The remedies where a process finds that others have made the catalogue after it: it leaves that as it is."""

TOLD = 1_000
"""After how many trees it is said how far the catalogue is."""


def open_cataloguer(settings: CoreSettings, archive: Archive, archive_url: str) -> Cataloguer:
    """The keeper of the catalogue of an archive, which is not connected to yet. Raises Unsupported where a package is
    missing.
    """
    own = CatalogueSettings.of(settings)
    url = own.catalogue_url or (archive_url if archive_url.startswith(("sqlite", "postgres")) else "sqlite")
    all_words = own.search_words == "all"
    return Cataloguer(archive, _catalogue(url, settings.data_dir), partial(describe, all_words=all_words))


def _catalogue(url: str, data: Path) -> Catalogue:
    if url.startswith("postgres"):
        try:
            from store.catalogue.postgres import PostgresCatalogue
        except ImportError as error:
            raise Unsupported("a catalogue in Postgres needs asyncpg: pip install 'harmonium[postgres]'") from error
        return PostgresCatalogue(url, Bounds())
    from store.catalogue.sqlite import SqliteCatalogue

    folder = Path(unquote(url.partition("://")[2])) if "://" in url else data / FOLDER
    return SqliteCatalogue(folder / FILE, Bounds().request_seconds)


def catalogue_chores(store: ConversationHistoryStore, archive: Archive, settings: CoreSettings) -> Iterator[Chore]:
    """The work of the catalogue of an archive beside requests."""
    if isinstance(archive.listener, Cataloguer):
        words = CatalogueSettings.of(settings).search_words
        yield Chore("cataloguing", partial(catalogue_for_ever, store, archive, archive.listener, words))


async def catalogue_for_ever(
    store: ConversationHistoryStore, archive: Archive, cataloguer: Cataloguer, words: str
) -> None:
    """Have the catalogue whole, and nothing in its index that was deleted, until cancelled. What others made by other
    words, or an older copy, is made anew once, at the start: else two would do so in turn.
    """
    tidy_at, told = monotonic() + DAY_SECONDS, None
    while True:
        with tolerate(store, "the catalogue is not whole yet"):
            if about := await about_of(archive, words):
                standing = await cataloguer.standing(about)
                if standing in OTHERS and told is not None:
                    if standing is not told:
                        message = "other processes make the list of conversations; this one doesn't"
                        event(logger, logging.WARNING, message, remedy=OTHERS[standing])
                else:
                    if standing in OTHERS:
                        await cataloguer.begin_anew(about)
                    await make_whole(cataloguer, about)
                told = standing
            if monotonic() >= tidy_at:
                tidy_at = monotonic() + DAY_SECONDS
                await cataloguer.catalogue.note_untidy()
            while await cataloguer.catalogue.tidy():
                pass
        await asyncio.sleep(TIDY_SECONDS * random.uniform(0.5, 1.0))


async def about_of(archive: Archive, words: str) -> str:
    """The words by which a catalogue is that of an archive, and finds these words; empty as long as it has no id."""
    stored = await archive.get(ID_KEY)
    return "" if stored is None else f"{stored.value.decode()} {words} {FORM}"


async def make_whole(cataloguer: Cataloguer, about: str) -> int:
    """Make a catalogue whole by these words, unless it is; how many trees were looked at."""
    made, told, unread = 0, 0, await cataloguer.unread()
    async for made in cataloguer.make_whole(about):
        if made - told >= TOLD:
            told = made
            event(logger, logging.INFO, "the catalogue of the archive is being made", conversations=made)
    if made:
        event(logger, logging.INFO, "the catalogue of the archive is whole", conversations=made)
    if (left := await cataloguer.unread()) and left != unread:
        message = "the list lacks shards of the archive that can't be read"
        event(logger, logging.ERROR, message, shards=" ".join(left), remedy="`harmonium archive verify` says why")
    return made
