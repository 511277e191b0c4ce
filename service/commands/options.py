"""The parts that commands share: options that are settings, how an error ends a command, JSON, lines and tables.

An option's help is the setting's own description, so that the two can't differ. An error is one line on stderr. There
is no option for API keys: the list of processes, which everybody on a machine can read, would show them.
"""

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Never, cast

import typer
from typer.core import TyperCommand

from service.commands.arguments import EXIT_FAILED, EXIT_STATUSES, EXIT_UNREACHABLE, EXIT_USAGE, amount, flag, option
from service.commands.signals import be_interruptible
from service.errors import ApiError
from service.process import Settings, load_settings
from service.settings.core import CoreSettings
from service.settings.engines import ENGINE_URLS
from service.settings.sources import SettingsError
from store.errors import ArchiveRefused, ArchiveUnavailable, NoStore, StoreBarred, StoreError, StoreUnavailable

LOG_OPTIONS = ("log_level", "log_format")
STORE_OPTIONS = ("redis_url", "data_dir")

EXIT_UNABLE = 2
"""The settings are wrong, or nothing could be done."""

Row = dict[str, Any]

Pace = Annotated[float, amount(0, None, "The pace, to spare a busy server; 0 is full speed")]
AsJson = Annotated[bool, flag("--json", "Print JSON.")]
PROJECT_HELP = "The id of a project, or a name in HARMONIUM_API_KEYS; without keys it is `default`."
ProjectOption = Annotated[str | None, option("--project", "ID", f"Only this project's conversations. {PROJECT_HELP}")]
TreeOption = Annotated[str | None, option("--tree", "ID", "Only the conversation with this response, with all forks.")]

_PANELS = {name: heading for heading, names in Settings.by_heading().items() for name in names}
_NO_DEFAULT = "none"


def _help(name: str) -> str:
    """A setting's meaning in a sentence, its allowed values where they are a few words, and its default."""
    sentence = re.split(r"(?<=\.) ", Settings.description(name))[0].rstrip(".")
    words = re.findall("`([^`]+)`", Settings.allowed_values(name))
    if not Settings.is_flag(name) and not all(word in sentence for word in words):
        sentence += f": {', '.join(words)}"
    default = Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})
    shown = ",".join(cast(tuple[str, ...], default)) if isinstance(default, tuple) else str(default)
    if Settings.is_flag(name):
        shown = "on" if default else "off"
    return f"{sentence}. [default: {shown.replace(str(Path.home()), '~') or _NO_DEFAULT}]"


def _metavar(name: str) -> str:
    """The placeholder of an option's value."""
    if Settings.is_flag(name):
        return ""
    ends = {"url": "URL", "dir": "FOLDER", "host": "ADDRESS"}
    other = "N" if Settings.is_number(name) else "WORD" if Settings.allowed_values(name).startswith("`") else "NAME"
    return ends.get(name.rpartition("_")[2], other)


class SettingsCommand(TyperCommand):
    """A command that has settings as options, whose words it puts together where they are shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._tell()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._tell()
        return super().shell_complete(ctx, incomplete)

    def _tell(self) -> None:
        for each in self.params:
            if each.name in _PANELS:
                vars(each).update(help=_help(each.name), metavar=_metavar(each.name))


def with_settings(*names: str) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """A SettingsCommand that gets the settings first, and has an option for each of these names, which goes before all
    other places of that setting. It ends the process with the status that it returns.
    """

    def decorate(command: Callable[..., int | None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            settings = load(**{name: given.pop(name) for name in names})
            raise typer.Exit(command(settings, **given) or 0)

        _, *own = inspect.signature(command).parameters.values()
        run.__dict__["__signature__"] = inspect.Signature([*own, *map(_option, names)])
        return run

    return decorate


with_store = with_settings(*STORE_OPTIONS)
"""A command that opens the store: it has the options that name it."""


def _option(name: str) -> inspect.Parameter:
    """The option that overrides the setting `name`, in the panel of its group."""
    word = name.replace("_", "-")
    spelled = f"--{word}/--no-{word}" if Settings.is_flag(name) else f"--{word}"
    made = typer.Option(spelled, show_default=False, rich_help_panel=_PANELS[name])
    annotation = Annotated[bool | None if Settings.is_flag(name) else str | None, made]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def load(**overrides: object) -> CoreSettings:
    """The settings, with the options that were given. An error in them ends the command."""
    try:
        settings = load_settings(**overrides)
    except SettingsError as error:
        fail(str(error), EXIT_UNABLE)
    # a variable may be there for other processes, an option is for this one
    if overrides.get("engine_url") is not None and settings.engine not in ENGINE_URLS:
        *kinds, last = ENGINE_URLS
        engines = f"--engine {', '.join(kinds)} or {last}"
        fail(f"--engine-url is for {engines}, and the engine is {settings.engine}; name another with it", EXIT_UNABLE)
    return settings


def fail(message: str, status: int = EXIT_FAILED) -> Never:
    """End the command for this reason."""
    typer.echo(f"harmonium: {message}", err=True)
    raise typer.Exit(status)


def be_sure(question: str, yes: bool) -> None:
    """Ask, unless it was said already. A no ends the command, as does the lack of somebody to answer."""
    try:
        if yes or typer.confirm(question, err=True):
            return
    except typer.Abort:
        fail("nothing was changed" if sys.stdin.isatty() else "nothing was changed: without a terminal use --yes")
    fail("nothing was changed")


@contextmanager
def asking(what: str, status: int | None = None) -> Generator[None]:
    """In the block a Ctrl-C interrupts, and a store that can't do it ends the command; `what` begins the message.
    Without a status the error names it: a request that is wrong was typed so. A store that is away has its own.
    """
    be_interruptible()
    try:
        yield
    except ApiError as refusal:
        fail(refusal.message, status or (EXIT_STATUSES | {400: EXIT_USAGE}).get(refusal.status, EXIT_FAILED))
    except NoStore as error:
        fail(f"{what}: {error}", EXIT_UNABLE)
    except (StoreError, OSError, ValueError, TypeError) as error:
        fail(f"{what}: {error}", EXIT_UNREACHABLE if is_away(error) else status or EXIT_FAILED)


def is_away(error: Exception) -> bool:
    """Whether the reason is that no store, or no archive, answers."""
    if isinstance(error, ArchiveUnavailable):
        return not (isinstance(error, ArchiveRefused) or error.disk_full)
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreBarred)


def show(value: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result as JSON, or as lines for people."""
    for line in (json.dumps(_rename_tenants(value), indent=2),) if as_json else lines:
        typer.echo(line)


def _rename_tenants(value: Any) -> object:
    """A result with its members' names as users know them: a tenant of the store is a project."""
    if isinstance(value, Mapping):
        names = {"tenant": "project", "tenants": "projects"}
        return {names.get(name, name): _rename_tenants(each) for name, each in cast(Mapping[str, Any], value).items()}
    return [*map(_rename_tenants, cast(Iterable[Any], value))] if isinstance(value, list | tuple) else value


def show_rows(rows: list[Row], names: Iterable[str], *, as_json: bool) -> None:
    """Print each row as a line of JSON, or these columns of all as a table."""
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    from rich.console import Console
    from rich.table import Table

    columns = tuple(names)
    shown = [tuple(cell(name, row) for name in columns) for row in rows]
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        longest = max((len(row[place]) for row in shown), default=0)
        table.add_column(name.replace("_", " "), no_wrap=True, min_width=longest)  # ids are copied whole
    for row in shown:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table, crop=False, soft_wrap=True)  # names have brackets and colons


def cell(name: str, row: Row) -> str:
    """A value of a row for people: a time as it is written, nothing for what there is not."""
    value = row.get(name)
    if value is None or value is False or value == []:
        return ""
    if value is True:
        return "yes"
    if name.endswith("_at") and isinstance(value, int):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    return " ".join(map(str, cast(list[object], value))) if isinstance(value, list) else str(value)
