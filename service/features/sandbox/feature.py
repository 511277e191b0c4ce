"""What the sandbox gives to a process: `harmonium sandbox`, and its settings."""

import typer

from service.process import Feature


class SandboxFeature(Feature):
    """The sandbox."""

    def commands(self, app: typer.Typer) -> None:
        from service.features.sandbox.command import sandbox

        app.command()(sandbox)


FEATURE = SandboxFeature()
