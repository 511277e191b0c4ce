"""The directory: projects, service accounts and keys, as an administrator makes, lists and ends them.

Each change goes into the audit log in the same script, and all processes are told whose keys are to be looked up again.
An object that isn't there, or is in another project, is a 404 in the same words.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from service.errors import ApiError, InvalidRequest, brief, not_allowed
from service.features.tenants.audit import Actor, AuditEvent
from service.features.tenants.limits import WHOLE_PROJECT, Limit
from service.features.tenants.permissions import ALL, ModelPermissions
from service.features.tenants.records import (
    ADMIN_KEYS,
    ADMIN_PREFIX,
    PREFIX,
    PROJECT_PREFIX,
    PROJECTS,
    Account,
    Key,
    Project,
    change_of,
    decode_to_change,
    digest_of,
    key_id,
    new_value,
    place_of,
    redact,
    static_project,
)
from service.settings.sources import variable
from store.errors import RegistryFull
from store.history.history import ConversationHistoryStore
from store.registry import MOST_A_PAGE, Change, RecordKey, Registry, repeat

T = TypeVar("T", Project, Account, Key)

ID_BYTES = 12
"""The bytes of chance in the ids of projects and accounts."""

MOST_PASSED_OVER = 2_000
"""The most records that one request looks at to find those that it wants; the next page goes on behind them."""

MAX_PROJECTS = 10_000
"""The most projects in the store, archived ones among them, and the most keys of administrators."""

MAX_PROJECT_KEYS = 1_000
"""The most keys, and the most service accounts, of a project: one that makes them without end is stopped here."""

ADMIN = "admin"
"""Stands for a project's id where the keys to look up again are administrators'."""


class RecordPage(NamedTuple, Generic[T]):
    """A page of a list; whether there are more behind it, and where the next page goes on."""

    records: list[T]
    more: bool
    last: str | None


class Made(NamedTuple):
    """A key, and its value, which nobody is shown again."""

    key: Key
    value: str


class Wish(NamedTuple):
    """The wish for a new key."""

    name: str
    scopes: tuple[str, ...] = ()
    seconds: int | None = None
    limit: Limit | None = None


class ChangedProject(NamedTuple):
    """The wished changes of a project: an UNSET field stays; None removes a `weight`, and what `trajectories` says."""

    name: str | UnsetType = UNSET
    weight: float | UnsetType | None = UNSET
    trajectories: bool | UnsetType | None = UNSET


class ChangedKey(NamedTuple):
    """The wished changes of a key: fields of None and an UNSET `limit` stay; a `limit` of None removes it."""

    scopes: tuple[str, ...] | None = None
    seconds: int | None = None
    limit: Limit | UnsetType | None = UNSET


class Directory:
    """The projects, accounts and keys of a store. A change names the records that it needs as they are, too: it happens
    only where they still are so.
    """

    def __init__(
        self, registry: Registry, clock: Callable[[], float], tenants: Callable[[], Sequence[str]] = tuple[str, ...]
    ) -> None:
        """`clock` gives the seconds since 1970, `tenants` those that have keys in the settings, in order."""
        self.registry, self._clock, self._tenants = registry, clock, tenants

    # projects

    async def create_project(
        self, actor: Actor, name: str, weight: float | None = None, trajectories: bool | None = None
    ) -> Project:
        """A new project. Raises ApiError where there are as many as there may be, StoreError."""
        id = f"{PROJECT_PREFIX}{secrets.token_hex(ID_BYTES)}"
        own: dict[str, Any] = {"weight": weight, "trajectories": trajectories}
        own = {"name": name} | {field: value for field, value in own.items() if value is not None}
        project = Project(id=id, created_at=int(self._clock()), **own)
        place = RecordKey(PROJECTS, project.id, MAX_PROJECTS)
        happened = AuditEvent("project.created", project.id, project, own)
        await self._change(actor, [happened], [change_of(None, project)], [place])
        return project

    async def projects(self, *, after: str | None, limit: int, archived: bool) -> RecordPage[Project]:
        """Projects, with those that are `archived` or without: those of the settings by their names, then all others in
        the order in which they were made. Raises ApiError.
        """

        def wanted(project: Project) -> bool:
            return archived or project.archived_at is None

        names = self._static
        begins = 0 if after is None else names.index(after) + 1 if after in names else len(names)
        static = [static_project(each) for each in names[begins : begins + limit + 1]]
        if len(static) > limit:
            return RecordPage(static[:limit], True, static[limit - 1].id)
        behind = None if after in names else after
        made = await self._page(PROJECTS, Project, behind, limit - len(static), wanted)
        last = made.last or (static[-1].id if static else after)
        return RecordPage([*static, *made.records], made.more, last)

    @property
    def _static(self) -> list[str]:
        """The tenants that have keys in the settings."""
        return [each for each in self._tenants() if not each.startswith(PROJECT_PREFIX)]

    async def project(self, id: str) -> Project:
        """A project. Raises ApiError 404."""
        return (await self._read_project(id))[0]

    async def _read_project(self, id: str) -> tuple[Project, Project | None]:
        """A project, and its record; None where a static one has none. Raises ApiError 404."""
        found, static = await self._read(Project, id), id in self._static
        if found is None and static:
            return static_project(id), None
        if found is None or found.static != static:  # its keys were taken out of the settings
            raise not_found("project", id)
        return found, found

    async def update_project(self, actor: Actor, id: str, wished: ChangedProject) -> Project:
        """The project under another name, with another weight, or with other notes. Raises ApiError."""
        changes = {name: value for name, value in wished._asdict().items() if value is not UNSET}
        told = {"title" if name == "name" else name: value for name, value in changes.items()}
        return await self._change_project(actor, id, lambda project: changes, told)

    async def archive_project(self, actor: Actor, id: str) -> Project:
        """End a project for good: none of its keys opens anything any more. Its conversations stay until they go by
        themselves. Raises ApiError.
        """
        now = int(self._clock())
        return await self._change_project(actor, id, lambda project: {"archived_at": now}, type="project.archived")

    async def permit_models(self, actor: Actor, id: str, models: ModelPermissions | None) -> Project:
        """The project with another list of the models that it may use; with None it may use all. Raises ApiError."""
        wished = models or ALL
        told = {"model_permissions": {"mode": wished.mode, "model_ids": list(wished.ids)}}
        return await self._change_project(actor, id, lambda project: {"models": models}, told)

    async def limit(self, actor: Actor, id: str, wished: Mapping[str, int | None] | None) -> Project:
        """The project with other limits: those that are `wished`, by their names, the others as they were; with None it
        has none of its own, as where each is taken away. Raises ApiError.
        """

        def change(project: Project) -> dict[str, Any]:
            after = msgspec.structs.replace(project.limit or Limit(), **wished) if wished else Limit()
            return {"limit": None if after == Limit() else after}

        type, about = "rate_limit.deleted" if wished is None else "rate_limit.updated", f"rl-{WHOLE_PROJECT}"
        return await self._change_project(actor, id, change, dict(wished or {}) or None, type=type, about=about)

    @repeat
    async def _change_project(
        self,
        actor: Actor,
        id: str,
        change: Callable[[Project], Mapping[str, Any]],
        wished: dict[str, Any] | None = None,
        *,
        type: str = "project.updated",
        about: str = "",
    ) -> Project:
        """The project with the fields that `change` returns. The audit log gets an event of this type, `about` a part
        of the project or the project itself, with the wish (`wished`). Raises ApiError, also for an archived project,
        and for a static one where its name or its end is changed.
        """
        before, record = await self._read_project(id)
        _refuse_archived(before)
        changes = change(before)
        if changes.keys() & {"name", "archived_at"}:
            _refuse_static(before)
        after = msgspec.structs.replace(before, **changes)
        happened = AuditEvent(type, about or id, after, wished)
        await self._change(actor, [happened], [change_of(record, after)], tell=id)
        return after

    # service accounts

    @repeat
    async def create_account(
        self, actor: Actor, project_id: str, name: str, wish: Wish | None
    ) -> tuple[Account, Made | None]:
        """A new service account, and its first key where there is a wish for one: both or neither. Raises ApiError."""
        project = await self._active(project_id)
        id = f"svc_acct_{secrets.token_hex(ID_BYTES)}"
        account = Account(id=id, project=project_id, name=name, created_at=int(self._clock()))
        events = [AuditEvent("service_account.created", id, project, {"role": "member"})]
        changes, places = [change_of(None, account)], [RecordKey(project.accounts, id, MAX_PROJECT_KEYS)]
        made = None if wish is None else self._new_key(wish, account)
        if made is not None:
            events.append(_key_created(made.key, project))
            changes.append(change_of(None, made.key))
            places += _places(made.key, MAX_PROJECT_KEYS)
        await self._change(actor, events, [change_of(project, project), *changes], places)
        return account, made

    async def accounts(self, project_id: str, *, after: str | None, limit: int) -> RecordPage[Account]:
        """The service accounts of a project. Raises ApiError."""
        project = await self.project(project_id)
        return await self._page(project.accounts, Account, after, limit)

    async def account(self, project_id: str, id: str) -> Account:
        """A service account of a project. Raises ApiError 404."""
        found = await self._read(Account, id)
        if found is None or found.project != project_id:
            raise not_found("service account", id)
        return found

    @repeat
    async def rename_account(self, actor: Actor, project_id: str, id: str, name: str) -> Account:
        """The service account under another name. Raises ApiError."""
        project, before = await self._active(project_id), await self.account(project_id, id)
        after = msgspec.structs.replace(before, name=name)
        happened = AuditEvent("service_account.updated", id, project)
        await self._change(actor, [happened], [change_of(before, after)])
        return after

    async def delete_account(self, actor: Actor, project_id: str, id: str) -> None:
        """End a service account, and all of its keys. Raises ApiError."""
        project, account = await self._delete_account(actor, project_id, id)
        await self._drop_keys(actor, project, account)  # keys made until it was gone

    @repeat
    async def _delete_account(self, actor: Actor, project_id: str, id: str) -> tuple[Project, Account]:
        project, account = await self.project(project_id), await self.account(project_id, id)
        await self._drop_keys(actor, project, account)
        happened = AuditEvent("service_account.deleted", id, project)
        await self._change(
            actor, [happened], [change_of(account, None)], [RecordKey(project.accounts, id, 0)], tell=project_id
        )
        return project, account

    @repeat
    async def _drop_keys(self, actor: Actor, project: Project, account: Account) -> None:
        while keys := (await self._page(account.keys, Key, None, MOST_A_PAGE)).records:
            for key in keys:
                await self._drop_key(actor, project, key)

    # keys

    @repeat
    async def create_key(self, actor: Actor, project_id: str, account_id: str, wish: Wish) -> Made:
        """A new key of a service account. Raises ApiError."""
        project, account = await self._active(project_id), await self.account(project_id, account_id)
        made = self._new_key(wish, account)
        changes, places = [change_of(account, account), change_of(None, made.key)], _places(made.key, MAX_PROJECT_KEYS)
        await self._change(actor, [_key_created(made.key, project)], changes, places)
        return made

    async def keys(self, project_id: str, *, after: str | None, limit: int) -> RecordPage[Key]:
        """The keys of a project. Raises ApiError."""
        project = await self.project(project_id)
        return await self._page(project.keys, Key, after, limit)

    async def key(self, project_id: str, id: str) -> Key:
        """A key of a project, or of administrators where that is empty. Raises ApiError 404."""
        found = await self.find_key(project_id, id)
        if found is None:
            raise not_found("API key" if project_id else "admin API key", id)
        return found

    async def find_key(self, project_id: str, id: str) -> Key | None:
        """A key of a project, or of administrators where that is empty; None where there is none of this id."""
        found = await self._read(Key, id)
        return found if found is not None and found.project == project_id else None

    async def valid_key(self, project_id: str, id: str) -> Key | None:
        """A key of a project; None where it has expired, or was revoked."""
        found = await self.find_key(project_id, id)
        return found if found is not None and found.valid(self._clock()) else None

    @repeat
    async def change_key(self, actor: Actor, project_id: str, id: str, wished: ChangedKey) -> Key:
        """A key with other scopes or limits, or that expires so many seconds from now. Raises ApiError, also for one
        that has expired.
        """
        project, before = await self._active(project_id), await self.key(project_id, id)
        if not before.valid(self._clock()):
            raise InvalidRequest(f"The API key '{brief(id)}' has expired. Create another one.", code="invalid_value")
        changes, asked = dict[str, Any](), dict[str, Any]()
        if wished.scopes is not None:
            changes["scopes"] = asked["scopes"] = wished.scopes
        if wished.seconds is not None:
            changes["expires_at"], asked["expires_in_seconds"] = int(self._clock()) + wished.seconds, wished.seconds
        if wished.limit is not UNSET:
            changes["limit"] = asked["limits"] = wished.limit
        after = msgspec.structs.replace(before, **changes)
        happened = AuditEvent("api_key.updated", id, project, asked)
        await self._change(actor, [happened], [change_of(before, after)], tell=project_id)
        return after

    @repeat
    async def delete_key(self, actor: Actor, project_id: str, id: str) -> None:
        """End a key of a project, or of administrators where that is empty. Raises ApiError."""
        project = await self.project(project_id) if project_id else None
        await self._drop_key(actor, project, await self.key(project_id, id))

    async def with_use(self, keys: Sequence[Key]) -> list[tuple[Key, Account | None, int | None]]:
        """These keys, each with its account, and when it was last used, in seconds, to the minute."""
        owners = await self._records([each.account for each in keys], Account)
        used = await self.registry.last_used([each.place for each in keys])
        return list(zip(keys, owners, used, strict=True))

    # administrators' keys

    async def create_admin_key(self, actor: Actor, wish: Wish) -> Made:
        """A new key of an administrator. Raises ApiError."""
        made = self._new_key(wish)
        happened = AuditEvent("api_key.created", made.key.id)
        await self._change(actor, [happened], [change_of(None, made.key)], _places(made.key, MAX_PROJECTS))
        return made

    async def admin_keys(self, *, after: str | None, limit: int, ascending: bool) -> RecordPage[Key]:
        """The keys of administrators. Raises ApiError."""
        return await self._page(ADMIN_KEYS, Key, after, limit, ascending=ascending)

    def _new_key(self, wish: Wish, account: Account | None = None) -> Made:
        value, now = new_value(PREFIX if account else ADMIN_PREFIX), int(self._clock())
        digest = digest_of(value.encode())
        key = Key(
            id=key_id(digest),
            digest=digest,
            redacted=redact(value),
            name=wish.name,
            created_at=now,
            project=account.project if account else "",
            account=account.id if account else "",
            scopes=wish.scopes,
            expires_at=None if wish.seconds is None else now + wish.seconds,
            limit=wish.limit,
        )
        return Made(key, value)

    async def _drop_key(self, actor: Actor, project: Project | None, key: Key) -> None:
        happened = AuditEvent("api_key.deleted", key.id, project)
        await self._change(actor, [happened], [change_of(key, None)], _places(key, 0), tell=key.project or ADMIN)

    async def _active(self, id: str) -> Project:
        """A project that may have accounts and keys. Raises ApiError."""
        project = await self.project(id)
        _refuse_archived(project)
        _refuse_static(project)
        return project

    async def _read(self, kind: type[T], id: str) -> T | None:
        (record,) = await self.registry.read(place_of(kind, id))
        return decode_to_change(record, kind)

    async def _change(
        self,
        actor: Actor,
        happened: Sequence[AuditEvent],
        changes: Sequence[Change],
        places: Sequence[RecordKey] = (),
        *,
        tell: str = "",
    ) -> None:
        entries = [each.record(actor) for each in happened]
        try:
            await self.registry.change(changes, places=places, entries=entries, tell=tell)
        except RegistryFull as error:
            raise _full(error.id) from None
        for each in happened:
            each.log(actor)

    async def _page(
        self,
        name: str,
        kind: type[T],
        after: str | None,
        limit: int,
        wanted: Callable[[T], bool] = lambda record: True,
        *,
        ascending: bool = True,
    ) -> RecordPage[T]:
        """A page of the list with this name. Raises ApiError for an `after` that isn't in it."""
        found: list[T] = []
        last, passed_over, size = after, 0, min(limit + 1, MOST_A_PAGE)
        while passed_over < MOST_PASSED_OVER:
            ids = await self.registry.page(name, after=last, limit=size, ascending=ascending)
            if ids is None:
                message = (
                    f"Nothing with id '{brief(last)}' in this list. Give 'after' the last_id of the previous page."
                )
                raise not_allowed(message, "after")
            for id, record in zip(ids, await self._records(ids, kind), strict=True):
                if record is not None and wanted(record):
                    if len(found) == limit:
                        return RecordPage(found, True, last)
                    found.append(record)
                last = id
            passed_over += len(ids)
            if len(ids) < size:
                return RecordPage(found, False, last)
        return RecordPage(found, True, last)

    async def _records(self, ids: Sequence[str], kind: type[T]) -> Sequence[T | None]:
        records = await self.registry.read(*(place_of(kind, id) for id in ids)) if ids else ()
        return [decode_to_change(each, kind) for each in records]


def _places(key: Key, most: int) -> list[RecordKey]:
    """The places of a key in its lists, of at `most` so many; 0 takes it out."""
    names = (f"keys/{key.project}", f"keys/{key.account}") if key.project else (ADMIN_KEYS,)
    return [RecordKey(name, key.id, most) for name in names]


def _full(names: str) -> InvalidRequest:
    """The refusal of one more in a list."""
    if names == PROJECTS:
        return InvalidRequest("There are too many projects already. Use one of them.", code="too_many_projects")
    if names.startswith("accounts/"):
        told = "The project has too many service accounts already. Delete one that you don't need."
        return InvalidRequest(told, code="too_many_accounts")
    return InvalidRequest("There are too many keys already. Delete one that you don't need.", code="too_many_keys")


def _key_created(key: Key, project: Project) -> AuditEvent:
    return AuditEvent("api_key.created", key.id, project, {"scopes": list(key.scopes)})


def _refuse_archived(project: Project) -> None:
    if project.archived_at is not None:
        raise InvalidRequest(f"The project '{brief(project.id)}' is archived, which is permanent. Create another one.")


def _refuse_static(project: Project) -> None:
    """Raise InvalidRequest for a project that only the settings change."""
    if project.static:
        raise InvalidRequest(
            f"The project '{brief(project.id)}' is a tenant of {variable('api_keys')}: change its name and keys in the "
            "settings. Create another project for keys that you can create and revoke here."
        )


def not_found(what: str, id: str) -> ApiError:
    """The error for an id that isn't there, or not in this project."""
    return ApiError(404, f"No {what} with id '{brief(id)}'. Check the id and its project.", code="not_found")


def open_directory(store: ConversationHistoryStore, tenants: Callable[[], Sequence[str]]) -> Directory:
    """The projects, accounts and keys in a store. `tenants` are those that have keys in the settings of now."""
    return Directory(Registry(store), time, tenants)
