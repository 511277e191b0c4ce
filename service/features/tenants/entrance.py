"""The entrances of tenants that are more than keys of the settings: usage is counted, limits hold, projects have keys.

CountingEntrance   counts the usage of answers that aren't stored, and settles what another process reserved
LimitingEntrance   and holds work within the limits of all tenants
ProjectEntrance    and knows the projects and keys of the store, with their rights and limits, and the audit log
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from service.entrance import Entrance, Entry, Reservation, WrongKey
from service.errors import ApiError, brief
from service.features.tenants.audit import FROM_SETTINGS, Actor, AuditEvent, FailedLogins, note
from service.features.tenants.directory import Directory
from service.features.tenants.keyring import KeyRing
from service.features.tenants.limits import Allowance, Limit, Limiter
from service.features.tenants.permissions import check_scope
from service.features.tenants.records import Project, static_project
from service.features.tenants.usage import Tally
from service.settings.keys import Keys
from store.spent import Over
from store.turn import Expense

ADMINISTRATORS = "(administrators)"
"""The name under which administrators take slots and turns, in place of a tenant's. No tenant can have it."""


class ProjectEntry(Entry, frozen=True, kw_only=True):
    """An entry of a service with projects: the actor of what it does; the registry's record of its project, if any; and
    of its key the scopes, where none is all of them, and the limits.
    """

    actor: Actor
    project: Project | None = None
    scopes: tuple[str, ...] = ()
    limit: Limit | None = None

    @property
    def keeps_ids(self) -> bool | None:
        return self.project and self.project.trajectories

    def may_use(self, names: Sequence[str]) -> bool:
        models = self.project and self.project.models
        return models is None or models.allow(names)

    def require(self, scope: str) -> None:
        check_scope(self.scopes, scope)


class CountingEntrance(Entrance):
    """Counts usage."""

    def __init__(self, keys: Keys, tally: Tally, limiter: Limiter) -> None:
        super().__init__(keys)
        self.tally, self.limiter = tally, limiter

    def settle(self, tenant: str, over: Over) -> None:
        self.limiter.settle(tenant, over)

    async def count(self, tenant: str, id: str, expense: Expense) -> None:
        await self.tally.count(tenant, id, expense)

    async def close(self) -> None:
        self.limiter.close()
        await self.tally.settle()


class LimitingEntrance(CountingEntrance):
    """Counts usage, and keeps limits."""

    def reserving(
        self, entry: Entry, model: str, id: str, *, reads: int, writes: int, succeeds: bool = False
    ) -> AbstractAsyncContextManager[Reservation | None]:
        return self.limiter.reserving(self._allowance(entry), model, id, reads=reads, writes=writes, succeeds=succeeds)

    async def refuse_exhausted(self, entry: Entry, model: str, *, counts: bool = False, succeeds: bool = False) -> None:
        await self.limiter.refuse_exhausted(self._allowance(entry), model, counts=counts, succeeds=succeeds)

    def _allowance(self, entry: Entry) -> Allowance:
        """The caller's own limits, without those of all tenants."""
        return Allowance(entry.tenant)


class ProjectEntrance(LimitingEntrance):
    """Counts usage, keeps limits, and lets the holders of the registry's keys in."""

    def __init__(self, keys: Keys, tally: Tally, limiter: Limiter, directory: Directory, ring: KeyRing) -> None:
        """`ring` has the keys of the `directory`."""
        super().__init__(keys, tally, limiter)
        self.directory, self.ring = directory, ring
        self._failed = FailedLogins(directory.registry)

    async def holder(self, key: bytes, project: str) -> Entry:
        tenant = self.keys.tenant(key)
        if tenant is not None:
            changed = await self.ring.project(tenant)
            if changed is not None and changed.archived_at is not None:
                raise WrongKey
            return ProjectEntry(tenant, actor=Actor(tenant), project=changed)
        if self.keys.administers(key):
            return ProjectEntry(ADMINISTRATORS, administers=True, actor=Actor(FROM_SETTINGS))
        return await self._holder_in_registry(key, project)

    async def _holder_in_registry(self, value: bytes, named: str) -> Entry:
        """The holder of a key of the registry. Raises ApiError, StoreUnavailable."""
        holder = await self.ring.holder(value)
        if holder is None:
            raise WrongKey
        key, project = holder
        if project is None:
            return ProjectEntry(ADMINISTRATORS, key.id, administers=True, actor=Actor(key.id))
        if named and named != project.id:
            raise ApiError(
                401,
                f"The header OpenAI-Project names '{brief(named)}', but the API key belongs to another project.",
                code="mismatched_project",
            )
        actor = Actor(key.id, key.account)
        return ProjectEntry(project.id, key.id, actor=actor, project=project, scopes=key.scopes, limit=key.limit)

    async def returning(self, tenant: str, key: str) -> Entry:
        project = await self.ring.project(tenant)
        found = await self.directory.valid_key(tenant, key) if key else None
        if (key and found is None) or (project is not None and project.archived_at is not None):
            raise WrongKey
        scopes, limit = ((), None) if found is None else (found.scopes, found.limit)
        return ProjectEntry(tenant, key, actor=Actor(key or tenant), project=project, scopes=scopes, limit=limit)

    def weight(self, tenant: str) -> float | None:
        return self.ring.weight(tenant)

    async def note(self, entry: Entry, type: str, id: str, data: dict[str, object] | None = None) -> None:
        assert isinstance(entry, ProjectEntry)
        project = entry.project or static_project(entry.tenant)
        await note(self.directory.registry, entry.tenant, entry.actor, AuditEvent(type, id, project, data))

    def _allowance(self, entry: Entry) -> Allowance:
        assert isinstance(entry, ProjectEntry)
        return Allowance(entry.tenant, entry.project and entry.project.limit, entry.key, entry.limit)

    def wrong_key(self, request_id: str, address: str) -> None:
        self._failed.note(request_id, address)
