"""The commands of operators: `harmonium doctor` and `harmonium fsck`."""

import typer

from service.commands.arguments import KEEP, RUN
from service.process import Feature


class OperatorFeature(Feature):
    """The commands of operators."""

    def commands(self, app: typer.Typer) -> None:
        from service.features.operator.doctor import doctor
        from service.features.operator.fsck import fsck

        app.command(rich_help_panel=RUN)(doctor)
        app.command(rich_help_panel=KEEP)(fsck)


FEATURE = OperatorFeature()
