"""The archive that the settings name: for the service, and for commands."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.commands.stores import on_store
from service.features.archive.settings import NO_ARCHIVE, SQLITE, ArchiveSettings
from service.features.catalogue.opening import open_cataloguer
from service.features.catalogue.settings import CatalogueSettings
from service.logs import event
from service.settings.core import CoreSettings
from service.settings.sources import variable
from store.archive.archive import Archive
from store.archive.opening import folder_of
from store.archive.opening import open_archive as open_archive_at
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciled, Reconciler
from store.catalogue.cataloguing import Cataloguer
from store.errors import NoStore
from store.history.history import ConversationHistoryStore
from store.watcher import UNWATCHED, Watcher

T = TypeVar("T")

logger = logging.getLogger(__name__)


def open_archive(settings: ArchiveSettings, watcher: Watcher = UNWATCHED) -> Archive | None:
    """The archive of turns that leave memory, where the settings name one. It isn't connected to yet.

    Raises ValueError where the URL names none, whose message goes on from the setting's name, and Unsupported where a
    package is missing.
    """
    if not settings.has_archive:
        return None
    archive = open_archive_at(settings.archive_url, settings.data_dir, watcher=watcher)
    archive.listener = open_cataloguer(settings, archive, settings.archive_url)
    return archive


def open_store_archive(settings: ArchiveSettings, store: ConversationHistoryStore) -> StoreArchive | None:
    """The archive of a store, which asks it from then on for what has left it. Raises as `open_archive` does."""
    archive = open_archive(settings, store.server.watcher)
    if archive is None:
        return None
    reconciler = Reconciler(store, archive, _tell_of_going_back)
    return StoreArchive(
        store,
        archive,
        reconcile=reconciler.shard,
        after_seconds=settings.archive_after_seconds,
        evicts=settings.archive_when_down == "evict",
        find=archive.listener.find if isinstance(archive.listener, Cataloguer) else None,
    )


def _tell_of_going_back(number: int, done: Reconciled) -> None:
    """Say that what was deleted was there again, and conversations stood where they stood before."""
    event(
        logger,
        logging.WARNING,
        "Redis lost its last changes: deletions are repeated",
        shard=number,
        conversations=done.trees,
        deleted=done.deleted,
        moved=done.moved,
        under_way=len(done.under_way),
        unreadable=done.unreadable,
        remedy=(
            "This continues by itself; `harmonium archive verify` lists the remaining faults. If the archive is an "
            "older copy, too, run `harmonium archive accept`"
        ),
    )


def with_archive(settings: CoreSettings) -> ArchiveSettings:
    """The settings with the archive that the service has with them: with the embedded server it has one by itself."""
    found = ArchiveSettings.of(settings)
    return found.model_copy(update={"archive_url": found.archive_url or ("" if settings.redis_url else SQLITE)})


def lists_alone(settings: ArchiveSettings) -> bool:
    """Whether each machine that uses the store has a list of its own of what is in a bucket, without having said so."""
    beside = settings.archive_kind in (NO_ARCHIVE, "sqlite", "postgresql", "postgres")
    return bool(settings.redis_url) and not beside and not CatalogueSettings.of(settings).catalogue_url


def check_kept(settings: ArchiveSettings) -> None:
    """Raises NoStore where the archive is one of files, and its folder has none: a new archive would be empty."""
    folder = folder_of(settings.archive_url, settings.data_dir)
    if folder is not None and not (folder.is_dir() and any(folder.iterdir())):
        names = variable("data_dir" if settings.archive_url == SQLITE else "archive_url")
        raise NoStore(f"no archive is in {folder}; mount its volume, or name its folder with {names}")


def on_both(
    settings: CoreSettings,
    work: Callable[[ConversationHistoryStore, Archive | None], Awaitable[T]],
    *,
    makes: bool = False,
) -> T:
    """Do something with the settings' Redis and archive. Raises StoreError, OSError, and ValueError for a URL that
    names no archive; NoStore where one isn't there yet, unless it `makes` it.
    """

    async def do(store: ConversationHistoryStore) -> T:
        archive = open_archive(with_archive(settings))
        try:
            return await work(store, archive)
        finally:
            if archive is not None:
                await archive.close()

    if not makes:
        check_kept(ArchiveSettings.of(settings))
    return on_store(settings, do, makes=makes)
