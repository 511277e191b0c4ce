"""The command line's client: its commands."""

import typer

from service.process import Feature


class ClientFeature(Feature):
    """The client."""

    def commands(self, app: typer.Typer) -> None:
        from service.features.client import command_line, erasing

        for own in (command_line.app, erasing.app):
            app.add_typer(own, name="")  # its commands, not a group of them


FEATURE = ClientFeature()
