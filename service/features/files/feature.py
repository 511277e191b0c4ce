"""Files in a process: what keeps them, their chores, and their routes."""

import asyncio
import random
from collections.abc import Iterable
from functools import partial

from fastapi import APIRouter

from service.features.files.settings import FileSettings
from service.ports import Chore
from service.process import Feature, Offered, Parts
from service.store_away import tolerate
from store.backup.archiving.archived_turns import ArchivedTurns
from store.files.files import Files
from store.history.history import ConversationHistoryStore
from store.layout import Layout

SWEEP_SECONDS = 60.0
"""How often expired files and dead uploads are looked for."""


class FilesFeature(Feature):
    """Files."""

    def compose(self, parts: Parts) -> None:
        from service.features.files.inputs import StoredAttachments

        elsewhere = parts.store.elsewhere
        archive = elsewhere.archive if isinstance(elsewhere, ArchivedTurns) else None
        files = Files(parts.store, archive, FileSettings.of(parts.settings).file_limits)
        parts.attachments = StoredAttachments(files, several=partial(getattr, parts.settings, "several_tenants"))
        parts.chores.append(Chore("files", partial(keep_for_ever, files, parts.store, parts.layout)))

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.files import routes

        return (routes.router,)


async def keep_for_ever(files: Files, store: ConversationHistoryStore, layout: Layout) -> None:
    """Know the files of the archive where this Redis doesn't, and sweep them again and again, until cancelled; neither
    where the store's layout record contradicts this process.
    """
    while True:
        with tolerate(store, "files of the archive are not known again"):
            await layout.check()
            await files.recover()
        with tolerate(store, "files are not swept"):
            await layout.check()
            await files.sweep()
        await asyncio.sleep(SWEEP_SECONDS * random.uniform(0.5, 1.5))


FEATURE = FilesFeature()
