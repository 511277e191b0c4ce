"""The command line: `harmonium serve`, `worker`, `sandbox`, `settings` and `--version`. The other commands are in the
files of their names, and those that talk to a service over HTTP in client/.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from service.app import create_app
from service.build import this_build
from service.commands import serve as serving
from service.commands import worker as working
from service.commands.options import AsJson, fail, load, show, with_settings
from service.features.archive.archive_command import archive
from service.features.archive.backup_command import backup, restore
from service.features.client.command_line import app as client
from service.features.client.options import command_line
from service.features.operator.doctor import doctor
from service.features.operator.fsck import fsck
from service.features.tenants.command import audit, keys, projects, usage
from service.process import Settings
from service.settings.group import display
from service.settings.sources import variable
from service.settings.urls import MASK
from store.errors import LayoutMismatch, Unsupported

PANELS = {
    "Run": "serve worker sandbox settings doctor completion",
    "Talk": "ask chat tail wait cancel jobs",
    "Look": "ls tree show log diff rm export import",
    "Keep": "archive backup restore fsck projects keys usage audit",
}
"""All commands as the help has them: those to begin with first."""


class InPanels(TyperGroup):
    """Commands in the panels and the order of PANELS."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        for panel, names in PANELS.items():
            for name in names.split():
                vars(self.commands[name])["rich_help_panel"] = panel
        return " ".join(PANELS.values()).split()


app = command_line(InPanels)

ENGINE = ("engine", "engine_url", "local_model", "model", "demo_tokens_per_second")
LOG = ("log_level", "log_format")


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
    """The OpenAI Responses API over open models, on your own machine, with every conversation kept in Redis."""


@contextmanager
def _starting() -> Generator[None]:
    """A process that can't start says why."""
    try:
        yield
    except (serving.StartError, LayoutMismatch, Unsupported) as error:
        fail(str(error))


@app.command()
@with_settings("host", "port", "workers", "worker", *ENGINE, "redis_url", "data_dir", *LOG)
def serve(settings: Settings) -> None:
    """Serve the API until Ctrl-C or SIGTERM.

    With no options at all it serves the demo engine at http://127.0.0.1:8000/v1 and keeps conversations in an
    embedded server, so that they are there again after a restart. Point an OpenAI SDK at it with
    `OPENAI_BASE_URL=http://127.0.0.1:8000/v1`.

    With vLLM servers: `harmonium serve --engine vllm --engine-url http://gpu:8000`. To let other machines in, set
    `HARMONIUM_API_KEYS` and `--host 0.0.0.0`.

    Each option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`. Options win over the environment, and that over a
    `.env` file in this folder. `harmonium settings` lists everything that can be set.
    """
    with _starting():
        serving.run(settings, create_app)


@app.command()
@with_settings("worker_concurrency", "worker_port", *ENGINE, "redis_url", *LOG)
def worker(settings: Settings) -> None:
    """Work on background responses until Ctrl-C or SIGTERM.

    `serve` does that too, unless it is told `--no-worker`. Workers of their own let you have as many as the engine can
    feed, and restart them without a request noticing: one that is stopped hands back what it is at work on, and others
    go on at once; one that dies is replaced when its leases have run out.

    It needs a Redis that all processes share (`--redis-url`), and the same engine and settings as `serve`.
    Each option is a setting: `--redis-url` is `HARMONIUM_REDIS_URL`.
    """
    with _starting():
        working.run(settings)


@app.command()
@with_settings("sandbox_listen", "sandbox_sessions", "sandbox_tenant_sessions", *LOG)
def sandbox(settings: Settings) -> None:
    """Run Python that a model writes, in confined sessions, until Ctrl-C or SIGTERM.

    Services name where it listens in `HARMONIUM_SANDBOX`. It needs no network and no Redis, and nothing of the service:
    give it a machine, or a container, of its own. docs/tools.md says against whom each protects.

    It first has a session try all that it must not be able to do. If anything of that succeeds, it says what, and ends
    with status 1. Over TCP it needs `HARMONIUM_SANDBOX_KEY`.
    """
    from service.features.sandbox import command as confining  # not at the top: `serve` needs nothing of it

    with _starting():
        confining.run(settings)


for command in doctor, fsck, backup, restore:
    app.command()(command)


@app.command("settings")
def print_settings(as_json: AsJson = False) -> None:
    """Print every setting as it stands, with what it means: a .env file to start from. Secrets are masked."""
    shown, lines = display(load()), list[str]()
    for heading, names in Settings.by_heading().items():
        lines.append(f"# --- {heading} ---\n")
        for name in names:
            line = f"{variable(name)}={_quote(shown[name])}"
            masked = MASK in line  # then it must not be read back: the mask would become the secret
            lines.append(f"# {Settings.description(name)}\n{'# ' if masked else ''}{line}\n")
    show(shown, lines, as_json=as_json)


def _quote(value: str | int | float | bool) -> str:
    """A value as `.env` wants it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"[\w.,:/@%+-]*", text):
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


app.add_typer(client, name="")  # its commands, not a group of them
app.add_typer(projects, name="projects")
app.add_typer(keys, name="keys")
app.add_typer(archive, name="archive")
app.command()(usage)
app.command()(audit)
