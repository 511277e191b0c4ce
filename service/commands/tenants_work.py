"""The commands' work in the registry of the settings' store, and the rows in which they show it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, TypeVar

import msgspec

from service.settings.settings import Settings
from service.tenants.audit import COMMAND_LINE, ENTRY_PREFIX, Actor, Wanted, page_of_entries
from service.tenants.directory import Directory, RecordPage, Wish
from service.tenants.limits import Limit
from service.tenants.permissions import ALL
from service.tenants.records import Account, Key, Project
from service.tenants.usage import DAY_HOURS, UsageScope, usage_of
from store.history.history import ConversationHistoryStore
from store.registry.spending import HOUR_SECONDS, Spending

T = TypeVar("T")

ACTOR = Actor(COMMAND_LINE)
PAGE = 100

BEFORE_ALL = f"{ENTRY_PREFIX}1"
"""A cursor before all entries of the audit log."""

FOLLOW_SECONDS = 1.0
"""How long a follower of the audit log waits before it asks for more."""

BY = {"project": "tenant", "key": "key", "model": "model"}
"""The dimensions of usage, with the store's names."""

Row = dict[str, Any]


def run(settings: Settings, work: Callable[[Directory], Awaitable[T]]) -> T:
    """Do something in the registry of the settings' store. Raises ApiError, StoreError, OSError."""
    from service.process import open_directory

    return _run(settings, lambda reached, store: work(open_directory(reached, store)))


def run_on_spending(settings: Settings, work: Callable[[Spending], Awaitable[T]]) -> T:
    """Do something with what was spent in the settings' store. Raises StoreError, OSError."""
    return _run(settings, lambda _, store: work(Spending(store)))


def _run(settings: Settings, work: Callable[[Settings, ConversationHistoryStore], Awaitable[T]]) -> T:
    """Do it with settings whose store is reached by its URL, as the embedded server is meanwhile."""

    from service.commands.doctor import server_url  # these two import an application, which --help needs not
    from service.process import open_store

    async def do(url: str) -> T:
        reached = settings.model_copy(update={"redis_url": url})
        store = open_store(reached)
        try:
            return await work(reached, store)
        finally:
            await store.close()

    with server_url(settings) as url:
        return asyncio.run(do(url))


async def projects(directory: Directory, *, archived: bool) -> list[Row]:
    """All projects."""
    found = await _all(lambda after: directory.projects(after=after, limit=PAGE, archived=archived))
    return [project_row(each) for each in found]


async def keys(directory: Directory, project: str) -> list[Row]:
    """All keys of a project."""
    found = await _all(lambda after: directory.keys(project, after=after, limit=PAGE))
    return await _keys(directory, found)


async def create_key(directory: Directory, project: str, account: str, wish: Wish) -> Row:
    """A new service account and its key, with the value that is shown once."""
    _, made = await directory.create_account(ACTOR, project, account, wish)
    assert made is not None
    (row,) = await _keys(directory, [made.key])
    return {**row, "value": made.value}


async def admin_keys(directory: Directory) -> list[Row]:
    """All keys of administrators."""
    found = await _all(lambda after: directory.admin_keys(after=after, limit=PAGE, ascending=True))
    return await _keys(directory, found)


async def create_admin_key(directory: Directory, wish: Wish) -> Row:
    """A new key of an administrator, with the value that is shown once."""
    made = await directory.create_admin_key(ACTOR, wish)
    (row,) = await _keys(directory, [made.key])
    return {**row, "value": made.value}


async def entries(directory: Directory, wanted: Wanted, limit: int) -> list[Row]:
    """The newest entries of the audit log, `limit` at most, the newest first."""
    found: list[Row] = []
    after, more = None, True
    while more and len(found) < limit:
        page = await page_of_entries(directory.registry, wanted, after=after, limit=min(PAGE, limit - len(found)))
        found += page.shown
        after, more = page.last, page.more
    return found


async def follow_entries(directory: Directory, wanted: Wanted, first: int, tell: Callable[[Row], None]) -> None:
    """Tell of so many entries of the audit log, and without end of each that is made: the oldest first."""
    known = await entries(directory, wanted, first)
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


async def usage(spending: Spending, project: str | None, by: Sequence[str], days: int) -> list[Row]:
    """The usage of the last so many days, this one included, by any of BY."""
    end = int(time()) // HOUR_SECONDS + 1
    first = max(0, (end - 1) // DAY_HOURS - days + 1) * DAY_HOURS
    tenants = frozenset([project] if project else ())
    asked = UsageScope(first=first, end=end, width=end, most=1, tenants=tenants, by=tuple(BY[name] for name in by))
    (bucket,) = (await usage_of(spending, asked)).buckets
    return [
        {name: getattr(spender, BY[name]) or None for name in by} | sums._asdict()
        for spender, sums in sorted(bucket.results.items())
    ]


def as_table(rows: list[Row], *columns: str) -> list[tuple[str, ...]]:
    """Rows for people: these columns, times as they are written, nothing for what there is not."""
    return [tuple(_shown(name, row.get(name)) for name in columns) for row in rows]


def _shown(name: str, value: object) -> str:
    if value is None or value is False or value == []:
        return ""
    if value is True:
        return "yes"
    if name.endswith("_at") and isinstance(value, int):
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    if isinstance(value, list):
        return " ".join(map(str, value))  # type: ignore[reportUnknownArgumentType]
    return str(value)


async def _all(page: Callable[[str | None], Awaitable[RecordPage[Any]]]) -> list[Any]:
    """All of a list; the settings bound how much that is."""
    found: list[Any] = []
    after, more = None, True
    while more:
        listed = await page(after)
        found += listed.records
        after, more = listed.last, listed.more
    return found


async def _keys(directory: Directory, found: list[Key]) -> list[Row]:
    rows: list[Row] = []
    for begin in range(0, len(found), PAGE):
        some = found[begin : begin + PAGE]
        owners: list[Account | None] = [None] * len(some)
        if some[0].account:
            owners = list(await directory.owners(some))
        used = await directory.last_used(some)
        for key, owner, last in zip(some, owners, used, strict=True):
            row: Row = msgspec.to_builtins(key)
            row = {name: row.get(name) for name in ("id", "name", "created_at", "expires_at", "scopes", "redacted")}
            row |= {"scopes": list(key.scopes), "last_used_at": last}
            rows.append(row | ({} if owner is None else {"account": owner.name}))
    return rows


def project_row(project: Project) -> Row:
    """A project by the names of its facts."""
    return {
        "id": project.id,
        "name": project.name,
        "created_at": project.created_at or None,
        "archived_at": project.archived_at,
        "static": project.static,
        "weight": project.weight,
    }


def limit_row(project: Project) -> Row:
    """The limits of a project."""
    return msgspec.structs.asdict(project.limit or Limit())


def models_row(project: Project) -> Row:
    """Which models a project may use."""
    models = project.models or ALL
    return {"id": project.id, "mode": models.mode, "model_ids": list(models.ids)}
