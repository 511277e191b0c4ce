"""The options of `harmonium projects`, `keys`, `usage` and `audit`, and how their results are printed."""

import json
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, Never

import typer
from msgspec import UNSET
from rich.console import Console
from rich.table import Table

from service.commands import tenants_work as work
from service.commands.signals import be_interruptible
from service.errors import ApiError
from service.settings.core import parse_limits
from service.settings.settings import Settings, SettingsError, load_settings
from service.tenants.audit import Wanted, done_by
from service.tenants.directory import ChangedProject, Directory, Wish
from service.tenants.permissions import ListMode, read_permissions, read_scopes
from service.tenants.records import checked_name, checked_weight
from store.errors import StoreError

EXIT_FAILURE = 1
EXIT_SETTINGS = 2

DAY_SECONDS = 86_400

projects = typer.Typer(no_args_is_help=True, help="Tenants that are made while the service runs: list, create, end.")
keys = typer.Typer(no_args_is_help=True, help="Keys of projects and of administrators: list, create, revoke.")

AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of a table.")]
Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The id of a project.", show_default=False)]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The id of a key, as `list` shows it.", show_default=False)]
Days = Annotated[
    float | None,
    typer.Option("--days", metavar="N", min=0.0001, max=3_660, help="When it expires. Without it, never."),
]

Weight = Annotated[
    str | None,
    typer.Option(
        "--weight",
        metavar="N|none",
        help="How much it is served beside others, which have 1: from 0.01 to 1,000. `none` is what the settings say.",
        show_default=False,
    ),
]

_PROJECT = ("id", "name", "created_at", "static", "weight", "archived_at")
_KEY = ("id", "name", "account", "redacted", "scopes", "created_at", "expires_at", "last_used_at")
_ADMIN = ("id", "name", "redacted", "created_at", "expires_at", "last_used_at")
_ENTRY = ("effective_at", "type", "resource", "project", "actor")
_USAGE = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")

Row = dict[str, Any]


class Dimension(StrEnum):
    """The dimensions of usage."""

    PROJECT = "project"
    KEY = "key"
    MODEL = "model"


@projects.command("list")
def list_projects(
    archived: Annotated[bool, typer.Option("--archived", metavar="", help="With those that have ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """All projects: those of HARMONIUM_API_KEYS, which are static, and then those that were made here, in order."""
    rows = _run(lambda directory: work.projects(directory, archived=archived))
    _print(rows, _PROJECT if archived else _PROJECT[:-1], as_json)


@projects.command("create")
def create_project(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    weight: Weight = None,
    as_json: AsJson = False,
) -> None:
    """Make a project: a tenant of its own. `harmonium keys create` makes it a key."""
    made = _run(lambda directory: directory.create_project(work.ACTOR, _name(name), _weight(weight)))
    _print_one(work.project_row(made), _PROJECT[:-1], as_json)


@projects.command("update")
def update_project(
    project: Project,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Its new name.", show_default=False)
    ] = None,
    weight: Weight = None,
    as_json: AsJson = False,
) -> None:
    """Give a project another name, or another weight by which its requests are served beside others."""
    if name is None and weight is None:
        _fail("say what is to change: --name or --weight", EXIT_FAILURE)

    def update(directory: Directory) -> Awaitable[Any]:
        wished = ChangedProject(None if name is None else _name(name), UNSET if weight is None else _weight(weight))
        return directory.update_project(work.ACTOR, project, wished)

    _print_one(work.project_row(_run(update)), _PROJECT[:-1], as_json)


@projects.command("archive")
def archive_project(project: Project, as_json: AsJson = False) -> None:
    """End a project for good: its keys open nothing any more. Its conversations expire like all others."""
    ended = _run(lambda directory: directory.archive_project(work.ACTOR, project))
    _print_one(work.project_row(ended), _PROJECT, as_json)


@projects.command("models")
def permit_models(
    project: Project,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="MODEL", help="Only this may be used; several times for several."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="MODEL", help="All but this may be used; several times for several."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", metavar="", help="All may be used.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which models a project may use, or change that. The others are not there for it."""
    if bool(allow) + bool(deny) + clear > 1:
        _fail("only one of --allow, --deny and --clear makes sense", EXIT_FAILURE)
    mode: ListMode = "allow_list" if allow else "deny_list"

    def permit(directory: Directory) -> Awaitable[Any]:
        if names := allow or deny:
            return directory.permit_models(work.ACTOR, project, read_permissions(mode, names))
        return directory.permit_models(work.ACTOR, project, None) if clear else directory.project(project)

    _print_one(work.models_row(_run(permit)), ("id", "mode", "model_ids"), as_json)


@projects.command("limits")
def limit_project(
    project: Project,
    wished: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LIMIT=N",
            help="Change one, such as max_tokens_per_1_month=100000, or =none for no limit; several times for several.",
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", metavar="", help="Take away all of its limits.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what limits a project, or change that: requests and tokens in a minute and in a month, and how many
    responses at once. Limits that aren't set stay as they are.

    Limits are max_requests_per_1_minute, max_tokens_per_1_minute, the same of 1_month, and max_parallel_responses.
    Where a project has none of its own, HARMONIUM_TENANT_LIMITS holds, which isn't shown here.
    """
    if wished and clear:
        _fail("only one of --set and --clear makes sense", EXIT_FAILURE)
    limits = None if clear else _limits(wished or ())

    def limit(directory: Directory) -> Awaitable[Any]:
        if limits == {}:
            return directory.project(project)
        return directory.limit(work.ACTOR, project, limits)

    found = work.limit_row(_run(limit))
    rows = [found] if as_json else [{"limit": name, "most": most} for name, most in found.items() if most is not None]
    _print(rows, ("limit", "most"), as_json)


@keys.command("list")
def list_keys(project: Project, as_json: AsJson = False) -> None:
    """The keys of a project, without their values."""
    _print(_run(lambda directory: work.keys(directory, project)), _KEY, as_json)


@keys.command("create")
def create_key(
    project: Project,
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="Its owner, such as a program.")] = "app",
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="A right of it; several times for several. All without it."),
    ] = None,
    days: Days = None,
    as_json: AsJson = False,
) -> None:
    """Make a service account with a key. Its value is printed here, and nowhere else."""

    def make(directory: Directory) -> Awaitable[Row]:
        wish = _wish("Secret Key", days, read_scopes(scope or ()))
        return work.create_key(directory, project, _name(account), wish)

    _print_one(_run(make), ("value", *_KEY[:-1]), as_json)


@keys.command("revoke")
def revoke_key(project: Project, key: KeyId, as_json: AsJson = False) -> None:
    """End a key of a project: it opens nothing any more, in all processes within a second."""
    _run(lambda directory: directory.delete_key(work.ACTOR, project, key))
    _print_one({"id": key, "deleted": True}, ("id", "deleted"), as_json)


@keys.command("list-admin")
def list_admin_keys(as_json: AsJson = False) -> None:
    """The keys of administrators, without their values; not the one in the settings."""
    _print(_run(work.admin_keys), _ADMIN, as_json)


@keys.command("create-admin")
def create_admin_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.", show_default=False)],
    days: Days = None,
    as_json: AsJson = False,
) -> None:
    """Make a key of an administrator. Its value is printed here, and nowhere else.

    The service takes such keys where `HARMONIUM_PROJECTS` is on, or `HARMONIUM_ADMIN_KEY` is set.
    """
    made = _run(lambda directory: work.create_admin_key(directory, _wish(_name(name), days)))
    _print_one(made, ("value", *_ADMIN[:-1]), as_json)


@keys.command("revoke-admin")
def revoke_admin_key(key: KeyId, as_json: AsJson = False) -> None:
    """End a key of an administrator."""
    _run(lambda directory: directory.delete_admin_key(work.ACTOR, key))
    _print_one({"id": key, "deleted": True}, ("id", "deleted"), as_json)


def audit(
    project: Annotated[str | None, typer.Option(metavar="ID", help="Only in this project.", show_default=False)] = None,
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only this, such as api_key.deleted.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="How many at most.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", metavar="", help="The oldest of them first, and then each new one until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print a JSON object a line.")] = False,
) -> None:
    """Show who did what to which project, service account and key, the newest first."""
    wanted = Wanted(types=(type,) if type else (), projects=(project,) if project else ())

    def shown(entry: Row) -> Row:
        about = {"resource": entry[entry["type"]]["id"], "project": entry.get("project", {}).get("id")}
        return {name: entry[name] for name in ("effective_at", "type")} | about | {"actor": done_by(entry)}

    def tell(entry: Row) -> None:
        (row,) = work.as_table([shown(entry)], *_ENTRY)
        typer.echo(json.dumps(entry) if as_json else "  ".join(row))

    if follow:
        _run(lambda directory: work.follow_entries(directory, wanted, limit, tell))
        return
    found = _run(lambda directory: work.entries(directory, wanted, limit))
    if as_json:
        for each in found:
            tell(each)
        return
    _print([shown(each) for each in found], _ENTRY, as_json=False)


def usage(
    project: Annotated[str | None, typer.Option(metavar="ID", help="Only this project.", show_default=False)] = None,
    by: Annotated[
        list[Dimension] | None,
        typer.Option("--by", help="A dimension to show it by; several times for several.", show_default="project"),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3_660, metavar="N", help="Of how many days, today included.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Show the usage by each project, key or model: responses that ended, and their tokens."""
    names = tuple(dict.fromkeys(each.value for each in by or (Dimension.PROJECT,)))
    rows = _do(lambda: work.run_on_spending(_load(), lambda spending: work.usage(spending, project, names, days)))
    _print(rows, (*names, *_USAGE), as_json)


def _run(deed: Callable[[Directory], Awaitable[Any]]) -> Any:
    """The result of a deed in the registry of the settings' store."""
    return _do(lambda: work.run(_load(), deed))


def _do(deed: Callable[[], Any]) -> Any:
    """The result of a deed in the settings' store. An error ends the command."""
    be_interruptible()
    try:
        return deed()
    except ApiError as refusal:
        _fail(refusal.message, EXIT_FAILURE)
    except (StoreError, OSError, ValueError, TypeError) as error:
        _fail(f"can't reach the store: {error}", EXIT_FAILURE)


def _weight(typed: str | None) -> float | None:
    """A weight as it is typed; None for none."""
    if typed is None or typed.lower() == "none":
        return None
    try:
        weight = float(typed)
    except ValueError:
        _fail(f"--weight {typed}: should be a number, or none", EXIT_FAILURE)
    return checked_weight(weight)


def _name(name: str) -> str:
    return checked_name(name)


def _limits(wished: Iterable[str]) -> dict[str, int | None]:
    """Limits as they are typed, by their names; None is no limit."""
    found = dict[str, int | None]()
    for each in wished:
        name, _, number = each.partition("=")
        none = number.lower() == "none"
        try:
            (name,) = parse_limits(f"{name}=0" if none else each)
            found[name] = None if none else int(number)
        except ValueError as error:
            wrong = str(error) if str(error).startswith("should") else "should be one NAME=NUMBER"
            _fail(f"--set {each}: {wrong}, or none", EXIT_FAILURE)
    return found


def _wish(name: str, days: float | None, scopes: tuple[str, ...] = ()) -> Wish:
    return Wish(name, scopes, None if days is None else max(1, round(days * DAY_SECONDS)))


def _print(rows: list[Row], columns: Iterable[str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    names = tuple(columns)
    shown = work.as_table(rows, *names)
    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(names):
        longest = max((len(row[place]) for row in shown), default=0)
        table.add_column(name.replace("_", " "), no_wrap=True, min_width=longest)  # ids are copied whole
    for row in shown:
        table.add_row(*row)
    Console().print(table, crop=False, soft_wrap=True)


def _print_one(row: Row, columns: Iterable[str], as_json: bool) -> None:
    """One thing, each of its facts on a line, so that it can be copied whole."""
    if as_json:
        typer.echo(json.dumps(row, indent=2))
        return
    names = tuple(columns)
    ((values),) = work.as_table([row], *names)
    for name, value in zip(names, values, strict=True):
        if value:
            typer.echo(f"{name.replace('_', ' ')}: {value}")


def _load() -> Settings:
    try:
        return load_settings()
    except SettingsError as error:
        _fail(str(error), EXIT_SETTINGS)


def _fail(message: str, status: int) -> Never:
    typer.echo(f"harmonium: {message}", err=True)
    raise typer.Exit(status)
