"""The archive in a process: its place among the parts, its chores and its check, and its commands."""

from collections.abc import Mapping, Sequence
from functools import partial

import typer

from service.commands.arguments import KEEP
from service.features.archive.chores import archive_check, archive_chores, end_for_ever
from service.features.archive.opening import open_store_archive
from service.features.archive.settings import SQLITE, ArchiveSettings
from service.features.catalogue.opening import catalogue_chores
from service.ports import Chore
from service.process import Feature, Parts
from service.settings.core import CoreSettings
from service.settings.sources import variable
from store.errors import ArchiveForeign, ArchiveUnfit, NewerFormat, Unsupported
from store.history.history import ConversationHistoryStore


class ArchiveFeature(Feature):
    """The archive."""

    def compose(self, parts: Parts) -> None:
        settings = ArchiveSettings.of(parts.settings)
        archive = open_store_archive(settings, parts.store)
        if archive is None:
            run = partial(end_for_ever, parts.store, parts.layout)
            parts.chores.append(Chore("ending the archive", run))
            return
        parts.secret = archive.secret
        parts.chores += archive_chores(archive, settings, parts.layout, parts.metrics)
        parts.chores += catalogue_chores(parts.store, archive.archive)
        parts.checks.append(archive_check(archive))

    def commands(self, app: typer.Typer) -> None:
        from service.commands.options import SettingsCommand
        from service.features.archive.archive_command import archive
        from service.features.archive.backup_command import backup, restore

        app.add_typer(archive, name="archive", rich_help_panel=KEEP)
        app.command(rich_help_panel=KEEP, cls=SettingsCommand)(backup)
        app.command(rich_help_panel=KEEP, cls=SettingsCommand)(restore)

    def beside_embedded(self, settings: CoreSettings) -> Mapping[str, object]:
        return {"archive_url": ArchiveSettings.of(settings).archive_url or SQLITE}

    async def join(self, settings: CoreSettings, store: ConversationHistoryStore, *, alone: bool) -> Sequence[str]:
        try:
            archive = open_store_archive(ArchiveSettings.of(settings), store)
            if archive is not None:
                try:
                    await archive.open()
                finally:
                    await archive.close()
        except (ValueError, ArchiveUnfit, ArchiveForeign) as error:
            raise Unsupported(f"{variable('archive_url')} {error}") from error
        except NewerFormat as error:
            raise Unsupported(
                f"{variable('archive_url')} names a newer archive: {error} (docs/upgrading.md)"
            ) from error
        return ()


FEATURE = ArchiveFeature()
