"""The commands that run a process, `harmonium serve` and `harmonium worker`. They start without any other command."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from service.app import create_app
from service.build import this_build
from service.commands import serve as serving
from service.commands import worker as working
from service.commands.arguments import OTHERS, PANELS, RUN, command_line
from service.commands.options import LOG_OPTIONS, STORE_OPTIONS, SettingsCommand, with_settings
from service.process import lacks
from service.settings.core import CoreSettings


class InPanels(TyperGroup):
    """Commands in the order of their panels: those to begin with first. One that isn't there may be of a feature."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if lacks():
                vars(error)["message"] = f"{vars(error)['message'].rstrip('.')}, and this installation {lacks()}."
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names; those of no panel come last, in one of their own."""
        panels = dict[str, str]()
        for name, command in self.commands.items():
            panels[name] = vars(command)["rich_help_panel"] = vars(command)["rich_help_panel"] or OTHERS
        return sorted(panels, key=lambda name: PANELS.index(panels[name]))


app = command_line(InPanels)

ENGINE = ("engine", "engine_url", "local_model", "model", "demo_tokens_per_second")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(str(this_build()))
        raise typer.Exit


@app.callback()
def harmonium(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """The OpenAI Responses API over open models, on your own machine. It stores every conversation.

    Exit statuses: 0 done, 1 failed, 2 wrong usage or settings, 3 not found, 4 refused, 5 nothing answers, 130 Ctrl-C.
    """


@app.command(rich_help_panel=RUN, cls=SettingsCommand)
@with_settings("host", "port", "workers", "embedded_worker", *ENGINE, *STORE_OPTIONS, *LOG_OPTIONS)
def serve(settings: CoreSettings) -> None:
    """Serve the API until Ctrl-C or SIGTERM.

    Without options it serves the demo engine at http://127.0.0.1:8000/v1 and keeps conversations in an embedded server,
    across restarts. Point an OpenAI SDK at it with `OPENAI_BASE_URL=http://127.0.0.1:8000/v1`.

    With vLLM servers: `harmonium serve --engine vllm --engine-url http://gpu:8000`. To let other machines in, set
    `HARMONIUM_API_KEYS` and `--host 0.0.0.0`.

    Each option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`. An option wins over the environment, and the
    environment over a `.env` file in this folder. `harmonium settings` lists all settings.
    """
    with serving.starting():
        serving.run(settings, create_app)


@app.command(rich_help_panel=RUN, cls=SettingsCommand)
@with_settings("worker_concurrency", "worker_port", *ENGINE, "redis_url", *LOG_OPTIONS)
def worker(settings: CoreSettings) -> None:
    """Work on background responses until Ctrl-C or SIGTERM.

    `serve` does this too, unless it has `--no-embedded-worker`. You can run as many separate workers as the engine can
    serve, and restart them without losing work. A stopped worker hands its responses back, and others continue them at
    once. The responses of a dead worker continue when its leases have expired.

    A worker needs a Redis that all processes share (`--redis-url`), and the same engine and settings as `serve`. Each
    option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`.
    """
    with serving.starting():
        working.run(settings)
