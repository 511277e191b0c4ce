"""The command line's client: its commands."""

import typer

from service.process import Feature


class ClientFeature(Feature):
    """The client."""

    def commands(self, app: typer.Typer) -> None:
        from service.features.client.command_line import app as client

        app.add_typer(client, name="")  # its commands, not a group of them


FEATURE = ClientFeature()
