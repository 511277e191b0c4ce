"""The registry's records of projects, service accounts and keys. Pure.

Each is found under its name, which begins with its kind. An older release passes over the fields that a newer one adds.
It then can't change the record, as it would have written it otherwise.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from service.errors import invalid_value
from service.settings.core import LEAST_WEIGHT, MOST_WEIGHT
from service.tenants.limits import Limit
from service.tenants.models import ModelPermissions
from store.registry.registry import Change

T = TypeVar("T", bound=msgspec.Struct)

MAX_NAME_CHARS = 256

PROJECTS, ADMIN_KEYS = "projects", "admin-keys"
"""The lists of all projects and of all administrators' keys."""


class Project(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant. The keys of a `static` one are in the settings, and the registry has only changes of it. Without
    `models` it may use all; without `limit` or `weight` it has those of the settings. Times are in seconds.
    """

    id: str
    name: str
    created_at: int
    archived_at: int | None = None
    static: bool = False
    models: ModelPermissions | None = None
    limit: Limit | None = None
    weight: float | None = None

    def may_use(self, names: Sequence[str]) -> bool:
        """Whether it may use the model of these names."""
        return self.models is None or self.models.allow(names)

    @property
    def place(self) -> str:
        """Its name in the registry."""
        return project_place(self.id)

    @property
    def accounts(self) -> str:
        """The list of its service accounts."""
        return f"accounts/{self.id}"

    @property
    def keys(self) -> str:
        """The list of its keys."""
        return f"keys/{self.id}"


PROJECT_PREFIX = "proj_"
"""The prefix of the ids of projects that were made here. A tenant of the settings whose name has it is one of those."""

UNKNOWN_TIME = 0
"""When a static project was made: nobody noted it."""


def static_project(tenant: str) -> Project:
    """The project of a tenant with keys in the settings that has no record in the registry yet."""
    return Project(id=tenant, name=tenant, created_at=UNKNOWN_TIME, static=True)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A service account: the holder of keys in a project."""

    id: str
    project: str
    name: str
    created_at: int

    @property
    def place(self) -> str:
        """Its name in the registry."""
        return account_place(self.id)

    @property
    def keys(self) -> str:
        """The list of its keys."""
        return f"keys/{self.id}"


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key, without its value: `digest` is that of it. An administrator's has neither project nor account."""

    id: str
    digest: str
    redacted: str
    name: str
    created_at: int
    project: str = ""
    account: str = ""
    scopes: tuple[str, ...] = ()
    expires_at: int | None = None
    limit: Limit | None = None

    @property
    def place(self) -> str:
        """Its name in the registry."""
        return key_place(self.digest)

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


ID_DIGITS = 24
"""How many hex digits of its digest are a key's id: nobody finds two keys with the same, nor the digest from it."""


def project_place(id: str) -> str:
    """The name of a project in the registry."""
    return f"project/{id}"


def account_place(id: str) -> str:
    """The name of a service account in the registry."""
    return f"account/{id}"


def key_id(digest: str) -> str:
    """The id of the key with a digest."""
    return f"key_{digest[:ID_DIGITS]}"


def key_place(digest: str) -> str:
    """The name in the registry of the key with a digest."""
    return place_of_key(key_id(digest))


def place_of_key(id: str) -> str:
    """The name in the registry of the key with an id."""
    return f"key/{id}"


def checked_name(name: str) -> str:
    """A name that people can read on one line, without blanks around it. Raises InvalidRequest."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        expected = f"It should have 1 to {MAX_NAME_CHARS} characters that can be printed, on one line."
        raise invalid_value("name", name, expected)
    return name


def checked_weight(weight: float) -> float:
    """The weight itself. Raises InvalidRequest where it is out of bounds."""
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise invalid_value(
            "weight", weight, f"It should be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:,}; others have 1, and null is none."
        )
    return weight


def decoded(record: bytes, kind: type[T]) -> T | None:
    """A record of the registry; None where there is none."""
    return msgspec.json.decode(record, type=kind) if record else None


def put(after: Project | Account | Key, before: bytes = b"") -> Change:
    """The change that keeps a record."""
    return Change(after.place, before, msgspec.json.encode(after))
