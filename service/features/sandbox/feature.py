"""The sandbox in a process: `harmonium sandbox`."""

import typer

from service.commands.arguments import RUN
from service.process import Feature


class SandboxFeature(Feature):
    """The sandbox."""

    def commands(self, app: typer.Typer) -> None:
        from service.commands.options import SettingsCommand
        from service.features.sandbox.command import sandbox

        app.command(rich_help_panel=RUN, cls=SettingsCommand)(sandbox)


FEATURE = SandboxFeature()
