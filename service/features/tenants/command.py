"""`harmonium projects`, `keys`, `usage` and `audit`: what an administrator does in the registry of the settings' store,
and the rows in which it is shown.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from time import time
from typing import Annotated, Any, Literal, Never, TypeVar

import msgspec
import typer
from msgspec import UNSET

from service.commands.arguments import EXIT_USAGE, SHOWN, SINCE, AsLines, Yes, amount, argument, flag, moment_of, option
from service.commands.options import (
    AsJson,
    Row,
    SettingsCommand,
    asking,
    be_sure,
    cell,
    fail,
    show,
    show_rows,
    with_store,
)
from service.commands.stores import on_store
from service.features.tenants.audit import COMMAND_LINE, ENTRY_PREFIX, Actor, AuditFilter, done_by, page_of_entries
from service.features.tenants.directory import ChangedProject, Directory, Made, RecordPage, Wish, open_directory
from service.features.tenants.limits import Limit
from service.features.tenants.permissions import ALL, ListMode, read_permissions, read_scopes
from service.features.tenants.records import Key, Project, checked_name, checked_weight
from service.features.tenants.settings import parse_limits
from service.features.tenants.usage import UsageScope, usage_of
from service.settings.core import CoreSettings
from store.history.history import ConversationHistoryStore
from store.spending import HOUR_SECONDS, Spending, Sums

T = TypeVar("T")

ACTOR = Actor(COMMAND_LINE)
PAGE = 100

BEFORE_ALL = f"{ENTRY_PREFIX}1"
"""A cursor before all entries of the audit log."""

FOLLOW_SECONDS = 1.0
"""How long a follower of the audit log waits before it asks for more."""

DAY_SECONDS = 86_400

projects = typer.Typer(
    no_args_is_help=True, help="Projects, each with its own keys and conversations: list, create, change, archive."
)
keys = typer.Typer(no_args_is_help=True, help="Keys of projects and of administrators: list, create, revoke.")

ProjectId = Annotated[str, argument("PROJECT", "The id of a project.")]
KeyId = Annotated[str, argument("KEY", "The id of a key, as `list` shows it.")]
Days = Annotated[
    float | None,
    amount(0.0001, 3_660, "The days until the key expires (default: never)", "--days"),
]

Weight = Annotated[
    str | None,
    option(
        "--weight",
        "N|none",
        "The project's share of service, relative to 1: from 0.01 to 1,000. `none` takes the weight from the settings.",
    ),
]

Notes = Annotated[
    Literal["on", "off", "none"] | None,
    option(
        "--trajectories",
        "on|off|none",
        "Whether its turns store data for trajectories (experimental). `none` is as the settings say.",
    ),
]
NOTES = {"on": True, "off": False}

_PROJECT = ("id", "name", "created_at", "static", "weight", "trajectories", "archived_at")
_KEY = ("id", "name", "account", "redacted", "scopes", "created_at", "expires_at", "last_used_at")
_ADMIN = ("id", "name", "redacted", "created_at", "expires_at", "last_used_at")
_ENTRY = ("effective_at", "type", "resource", "project", "actor")
Dimension = StrEnum("Dimension", ["project", "key", "model"])
BY = {"project": "tenant", "key": "key", "model": "model"}
"""The dimensions of usage, with the store's names."""


@projects.command("list", cls=SettingsCommand)
@with_store
def list_projects(
    settings: CoreSettings,
    archived: Annotated[bool, flag("--archived", "Also list archived projects.")] = False,
    as_json: AsLines = False,
) -> None:
    """List all projects: first the static ones of HARMONIUM_API_KEYS, then those that were created here, in order."""

    def list_all(directory: Directory) -> Awaitable[list[Project]]:
        return _all(lambda after: directory.projects(after=after, limit=PAGE, archived=archived))

    rows = [_project_row(each) for each in _in_registry(settings, list_all)]
    show_rows(rows, _PROJECT if archived else _PROJECT[:-1], as_json=as_json)


@projects.command("create", cls=SettingsCommand)
@with_store
def create_project(
    settings: CoreSettings,
    name: Annotated[str, argument("NAME", "The name of the project.")],
    weight: Weight = None,
    as_json: AsJson = False,
) -> None:
    """Create a project. `harmonium keys create` creates a key for it.

    Where there is no store yet, this makes it in `--data-dir`, whose parent folder has to exist.
    """

    def create(directory: Directory) -> Awaitable[Project]:
        return directory.create_project(ACTOR, checked_name(name), _weight(weight))

    made = _in_registry(settings, create, makes=True)
    _show_one(_project_row(made), _PROJECT[:-1], as_json)


@projects.command("update", cls=SettingsCommand)
@with_store
def update_project(
    settings: CoreSettings,
    project: ProjectId,
    name: Annotated[str | None, option("--name", "NAME", "The new name.")] = None,
    weight: Weight = None,
    trajectories: Notes = None,
    as_json: AsJson = False,
) -> None:
    """Change the name or the weight of a project, or whether its turns store data for trajectories."""
    if name is None and weight is None and trajectories is None:
        fail("nothing to change: give --name, --weight or --trajectories", EXIT_USAGE)

    def update(directory: Directory) -> Awaitable[Project]:
        named = UNSET if name is None else checked_name(name)
        notes = UNSET if trajectories is None else NOTES.get(trajectories)
        wished = ChangedProject(named, UNSET if weight is None else _weight(weight), notes)
        return directory.update_project(ACTOR, project, wished)

    _show_one(_project_row(_in_registry(settings, update)), _PROJECT[:-1], as_json)


@projects.command("archive", cls=SettingsCommand)
@with_store
def archive_project(settings: CoreSettings, project: ProjectId, yes: Yes = False, as_json: AsJson = False) -> None:
    """Archive a project permanently: its keys stop working. Its conversations expire like all others."""
    be_sure(f"Archive {project} permanently?", yes)
    ended = _in_registry(settings, lambda directory: directory.archive_project(ACTOR, project))
    _show_one(_project_row(ended), _PROJECT, as_json)


@projects.command("models", cls=SettingsCommand)
@with_store
def permit_models(
    settings: CoreSettings,
    project: ProjectId,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="MODEL", help="Allow only this model. Repeatable."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option("--deny", metavar="MODEL", help="Forbid this model and allow all others. Repeatable."),
    ] = None,
    clear: Annotated[bool, flag("--clear", "Allow all models.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or change the models that a project can use. It can't see any other model."""
    if bool(allow) + bool(deny) + clear > 1:
        fail("give only one of --allow, --deny and --clear", EXIT_USAGE)
    mode: ListMode = "allow_list" if allow else "deny_list"

    def permit(directory: Directory) -> Awaitable[Project]:
        if names := allow or deny:
            return directory.permit_models(ACTOR, project, read_permissions(mode, names))
        return directory.permit_models(ACTOR, project, None) if clear else directory.project(project)

    models = _in_registry(settings, permit).models or ALL
    row = {"id": project, "mode": models.mode, "model_ids": list(models.ids)}
    _show_one(row, row, as_json)


@projects.command("limits", cls=SettingsCommand)
@with_store
def limit_project(
    settings: CoreSettings,
    project: ProjectId,
    wished: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LIMIT=N",
            help="Change a limit, such as max_tokens_per_1_month=100000, or =none for no limit. Repeatable.",
        ),
    ] = None,
    clear: Annotated[bool, flag("--clear", "Remove all limits of the project.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or change a project's limits: requests and tokens in a minute and in a month, and responses at once. Unset
    limits stay as they are.

    Limits are max_requests_per_1_minute, max_tokens_per_1_minute, the same of 1_month, and max_parallel_responses.
    Where a project has no limit, HARMONIUM_TENANT_LIMITS applies, which isn't shown here.
    """
    if wished and clear:
        fail("give only one of --set and --clear", EXIT_USAGE)
    limits = None if clear else _limits(wished or ())

    def limit(directory: Directory) -> Awaitable[Project]:
        return directory.project(project) if limits == {} else directory.limit(ACTOR, project, limits)

    found = msgspec.structs.asdict(_in_registry(settings, limit).limit or Limit())
    if as_json:
        _show_one(found, (), as_json)
    else:
        rows = [{"limit": name, "most": most} for name, most in found.items() if most is not None]
        show_rows(rows, ("limit", "most"), as_json=False)


@keys.command("list", cls=SettingsCommand)
@with_store
def list_keys(settings: CoreSettings, project: ProjectId, as_json: AsLines = False) -> None:
    """List the keys of a project, without their values."""
    _show_keys(settings, lambda directory, after: directory.keys(project, after=after, limit=PAGE), _KEY, as_json)


@keys.command("create", cls=SettingsCommand)
@with_store
def create_key(
    settings: CoreSettings,
    project: ProjectId,
    account: Annotated[
        str, typer.Option("--account", metavar="NAME", help="The account that owns the key, such as a program.")
    ] = "app",
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="A right of the key. Repeatable. Default: all."),
    ] = None,
    days: Days = None,
    as_json: AsJson = False,
) -> None:
    """Create a service account with a key, and print the key's value, which is not shown again."""

    async def make(directory: Directory) -> Made | None:
        wish = _wish("Secret Key", days, read_scopes(scope or ()))
        _, made = await directory.create_account(ACTOR, project, checked_name(account), wish)
        return made

    _show_made(settings, make, _KEY, as_json)


@keys.command("revoke", cls=SettingsCommand)
@with_store
def revoke_key(
    settings: CoreSettings, project: ProjectId, key: KeyId, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Revoke a key of a project: within a second it stops working in all processes."""
    be_sure(f"Revoke {key}?", yes)
    _in_registry(settings, lambda directory: directory.delete_key(ACTOR, project, key))
    _show_one({"id": key, "deleted": True}, ("id", "deleted"), as_json)


@keys.command("list-admin", cls=SettingsCommand)
@with_store
def list_admin_keys(settings: CoreSettings, as_json: AsLines = False) -> None:
    """List the keys of administrators, without their values; the key in the settings is not listed."""
    _show_keys(
        settings,
        lambda directory, after: directory.admin_keys(after=after, limit=PAGE, ascending=True),
        _ADMIN,
        as_json,
    )


@keys.command("create-admin", cls=SettingsCommand)
@with_store
def create_admin_key(
    settings: CoreSettings,
    name: Annotated[str, argument("NAME", "The owner of the key.")],
    days: Days = None,
    as_json: AsJson = False,
) -> None:
    """Create a key for an administrator, and print its value, which is not shown again.

    The service accepts such keys if `HARMONIUM_PROJECTS` is on or `HARMONIUM_ADMIN_KEY` is set. Where there is no
    store yet, this makes it in `--data-dir`, whose parent folder has to exist.
    """

    def make(directory: Directory) -> Awaitable[Made]:
        return directory.create_admin_key(ACTOR, _wish(checked_name(name), days))

    _show_made(settings, make, _ADMIN, as_json, makes=True)


@keys.command("revoke-admin", cls=SettingsCommand)
@with_store
def revoke_admin_key(settings: CoreSettings, key: KeyId, yes: Yes = False, as_json: AsJson = False) -> None:
    """Revoke a key of an administrator."""
    be_sure(f"Revoke {key}?", yes)
    _in_registry(settings, lambda directory: directory.delete_key(ACTOR, "", key))
    _show_one({"id": key, "deleted": True}, ("id", "deleted"), as_json)


@with_store
def audit(
    settings: CoreSettings,
    project: Annotated[str | None, option("ID", "Only in this project.")] = None,
    type: Annotated[str | None, option("TYPE", "Only entries of this type, such as api_key.deleted.")] = None,
    since: Annotated[str | None, option("TIME", f"Only entries made {SINCE}")] = None,
    limit: Annotated[int, amount(1, 100_000, "The most rows")] = SHOWN,
    follow: Annotated[bool, flag("--follow", "Print the oldest first, then new entries until Ctrl-C.")] = False,
    as_json: AsLines = False,
) -> None:
    """Show the audit log of projects, service accounts and keys, the newest first."""
    first = 0 if since is None else _moment(since)
    wanted = AuditFilter(types=(type,) if type else (), projects=(project,) if project else (), first=first)

    def tell(entry: Row) -> None:
        row = _entry_row(entry)
        typer.echo(json.dumps(entry) if as_json else "  ".join(cell(name, row) for name in row))

    if follow:
        _in_registry(settings, lambda directory: _follow(directory, wanted, limit, tell))
    found: list[Row] = _in_registry(settings, lambda directory: _entries(directory, wanted, limit))
    if as_json:
        for each in found:
            tell(each)
    else:
        show_rows([_entry_row(each) for each in found], _ENTRY, as_json=False)


@with_store
def usage(
    settings: CoreSettings,
    project: Annotated[str | None, option("ID", "Only this project.")] = None,
    by: Annotated[
        list[Dimension] | None,
        option("--by", "project|key|model", "A dimension. Repeatable. Default: project."),
    ] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help=f"Only what ended {SINCE}")] = "30d",
    as_json: AsLines = False,
) -> None:
    """Show usage by project, key or model: ended responses and their tokens. It is counted by the hour."""
    names = tuple(dict.fromkeys(each.name for each in by or (Dimension.project,)))
    end = int(time()) // HOUR_SECONDS + 1
    first = min(_moment(since) // HOUR_SECONDS, end - 1)
    tenants = frozenset([project] if project else ())
    asked = UsageScope(first=first, end=end, width=end, most=1, tenants=tenants, by=tuple(BY[name] for name in names))
    (bucket,) = _in_store(settings, lambda store: usage_of(Spending(store), asked)).buckets
    rows = [
        {name: getattr(spender, BY[name]) or None for name in names} | sums._asdict()
        for spender, sums in sorted(bucket.results.items())
    ]
    show_rows(rows, (*names, *Sums._fields), as_json=as_json)


def _in_registry(settings: CoreSettings, deed: Callable[[Directory], Awaitable[T]], *, makes: bool = False) -> T:
    """The result of a deed in the registry of the settings' store. An error ends the command."""
    return _in_store(settings, lambda store: deed(open_directory(store, lambda: settings.static_tenants)), makes=makes)


def _in_store(
    settings: CoreSettings, deed: Callable[[ConversationHistoryStore], Awaitable[T]], *, makes: bool = False
) -> T:
    """The result of a deed in the settings' store."""
    with asking("can't use the store"):
        return on_store(settings, deed, makes=makes)


async def _entries(directory: Directory, wanted: AuditFilter, limit: int) -> list[Row]:
    """The newest entries of the audit log, `limit` at most, the newest first."""
    found: list[Row] = []
    after, more = None, True
    while more and len(found) < limit:
        page = await page_of_entries(directory.registry, wanted, after=after, limit=min(PAGE, limit - len(found)))
        found += page.shown
        after, more = page.last, page.more
    return found


async def _follow(directory: Directory, wanted: AuditFilter, first: int, tell: Callable[[Row], None]) -> Never:
    """Tell of so many entries of the audit log, and without end of each that is made: the oldest first."""
    known = await _entries(directory, wanted, first)
    for each in reversed(known):
        tell(each)
    newest = known[0]["id"] if known else BEFORE_ALL
    while True:
        page = await page_of_entries(directory.registry, wanted, after=None, before=newest, limit=PAGE)
        for each in reversed(page.shown):
            tell(each)
        newest = page.first or newest
        if not page.more:
            await asyncio.sleep(FOLLOW_SECONDS)


async def _all(page: Callable[[str | None], Awaitable[RecordPage[Any]]]) -> list[Any]:
    """All of a list; the settings bound how much that is."""
    found: list[Any] = []
    after, more = None, True
    while more:
        listed = await page(after)
        found += listed.records
        after, more = listed.last, listed.more
    return found


def _show_keys(
    settings: CoreSettings,
    page: Callable[[Directory, str | None], Awaitable[RecordPage[Key]]],
    names: Iterable[str],
    as_json: bool,
) -> None:
    """Print all keys of a list."""

    async def list_rows(directory: Directory) -> list[Row]:
        return await _key_rows(directory, await _all(lambda after: page(directory, after)))

    show_rows(_in_registry(settings, list_rows), names, as_json=as_json)


def _show_made(
    settings: CoreSettings,
    make: Callable[[Directory], Awaitable[Made | None]],
    names: tuple[str, ...],
    as_json: bool,
    *,
    makes: bool = False,
) -> None:
    """Print a new key with its value, which is shown once."""

    async def make_row(directory: Directory) -> Row:
        new = await make(directory)
        assert new is not None, "there was a wish for one"
        (row,) = await _key_rows(directory, [new.key])
        return {**row, "value": new.value}

    _show_one(_in_registry(settings, make_row, makes=makes), ("value", *names[:-1]), as_json)


async def _key_rows(directory: Directory, found: list[Key]) -> list[Row]:
    rows: list[Row] = []
    for key, owner, used in await directory.with_use(found):
        row: Row = {name: getattr(key, name) for name in ("id", "name", "created_at", "expires_at", "redacted")}
        row |= {"scopes": list(key.scopes), "last_used_at": used}
        rows.append(row | ({} if owner is None else {"account": owner.name}))
    return rows


def _project_row(project: Project) -> Row:
    return {name: getattr(project, name) for name in _PROJECT} | {"created_at": project.created_at or None}


def _entry_row(entry: Row) -> Row:
    about = (entry["effective_at"], entry["type"], entry[entry["type"]]["id"], entry.get("project", {}).get("id"))
    return dict(zip(_ENTRY, (*about, done_by(entry)), strict=True))


def _moment(typed: str) -> int:
    """The second of a time as it is typed."""
    try:
        return moment_of(typed)
    except ValueError as error:
        fail(f"--since {error}", EXIT_USAGE)


def _weight(typed: str | None) -> float | None:
    """A weight as it is typed; None for none."""
    if typed is None or typed.lower() == "none":
        return None
    try:
        weight = float(typed)
    except ValueError:
        fail(f"--weight {typed}: should be a number, or none", EXIT_USAGE)
    return checked_weight(weight)


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
            fail(f"--set {each}: {wrong}, or none", EXIT_USAGE)
    return found


def _wish(name: str, days: float | None, scopes: tuple[str, ...] = ()) -> Wish:
    return Wish(name, scopes, None if days is None else max(1, round(days * DAY_SECONDS)))


def _show_one(row: Row, names: Iterable[str], as_json: bool) -> None:
    """Print one thing, each of its facts on a line, so that it can be copied whole."""
    lines = [f"{name.replace('_', ' ')}: {text}" for name in names if (text := cell(name, row))]
    show(row, lines, as_json=as_json)
