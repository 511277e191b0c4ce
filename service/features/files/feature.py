"""Files in a process: what keeps them, their chores, and their routes."""

import asyncio
import random
from collections.abc import Iterable
from functools import partial

from fastapi import APIRouter

from service.features.archive.settings import ArchiveSettings
from service.features.files.settings import FileSettings
from service.ports import Chore
from service.process import Feature, Offered, Parts
from service.store_away import tolerate
from store.archive.opening import open_archive
from store.files.files import Files
from store.history.history import ConversationHistoryStore

SWEEP_SECONDS = 60.0
"""How often expired files and dead uploads are looked for."""


class FilesFeature(Feature):
    """Files."""

    def compose(self, parts: Parts) -> None:
        from service.features.files.inputs import StoredAttachments

        archive, settings = ArchiveSettings.of(parts.settings), FileSettings.of(parts.settings)
        opened = None
        if archive.has_archive:
            opened = open_archive(archive.archive_url, archive.data_dir, watcher=parts.store.server.watcher)
        files = Files(parts.store, opened, settings.file_limits)
        parts.attachments = StoredAttachments(files)
        parts.chores.append(Chore("files", partial(keep_for_ever, files, parts.store), close=files.close))

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.files import routes

        return (routes.router,)


async def keep_for_ever(files: Files, store: ConversationHistoryStore) -> None:
    """Know the files of the archive where this Redis doesn't, and sweep them again and again, until cancelled."""
    while True:
        with tolerate(store, "files are not swept"):
            await files.recover()
            await files.sweep()
        await asyncio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))


FEATURE = FilesFeature()
