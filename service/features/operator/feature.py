"""The commands of operators: `harmonium doctor` and `harmonium fsck`."""

import typer

from service.commands.arguments import KEEP, RUN
from service.process import Feature
from service.settings.core import CoreSettings
from store.history.history import ConversationHistoryStore


class OperatorFeature(Feature):
    """The commands of operators."""

    def commands(self, app: typer.Typer) -> None:
        from service.commands.options import SettingsCommand
        from service.features.operator.doctor import doctor
        from service.features.operator.fsck import fsck

        app.command(rich_help_panel=RUN, cls=SettingsCommand)(doctor)
        app.command(rich_help_panel=KEEP, cls=SettingsCommand)(fsck)

    async def join(self, settings: CoreSettings, store: ConversationHistoryStore, *, alone: bool) -> list[str]:
        from service.features.operator.at_start import warn_of_default, warn_of_redis

        of_redis = [] if alone else await warn_of_redis(settings)
        return of_redis + await warn_of_default(settings, store)


FEATURE = OperatorFeature()
