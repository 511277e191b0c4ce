"""The admin API on the wire: its objects, and the bodies of its routes. A key's value is in one answer only."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.decoding import ABSENT, decode
from service.errors import invalid_value, missing, not_allowed, not_served
from service.features.tenants.directory import ChangedKey, ChangedProject, Made, Wish
from service.features.tenants.limits import WHOLE_PROJECT, Limit
from service.features.tenants.permissions import (
    ALL,
    MAX_SCOPES,
    ListMode,
    ModelPermissions,
    read_permissions,
    read_scopes,
)
from service.features.tenants.records import Account, Key, Project, checked_name, checked_weight
from service.features.tenants.settings import LIMITS, MAX_LIMIT

MAX_SECONDS = 10 * 366 * 86_400
"""The latest that a key may expire: in ten years. One that is to be for ever has no end."""


class ProjectShown(msgspec.Struct):
    """A project; `static` is one whose keys are in the settings. Without `weight` the settings say what that is."""

    id: str
    name: str
    created_at: int
    archived_at: int | None
    status: Literal["active", "archived"]
    static: bool
    weight: float | None
    object: Literal["organization.project"] = "organization.project"


class ModelsShown(msgspec.Struct):
    """Which models a project may use."""

    mode: ListMode
    model_ids: tuple[str, ...]
    object: Literal["project.model_permissions"] = "project.model_permissions"


class ModelsDeleted(msgspec.Struct):
    """A list of models that is no longer there."""

    deleted: bool = True
    object: Literal["project.model_permissions.deleted"] = "project.model_permissions.deleted"


class AccountShown(msgspec.Struct):
    """A service account; `api_key` is its first key, where one was just made."""

    id: str
    name: str
    created_at: int
    api_key: "KeyMade | UnsetType | None" = UNSET
    role: Literal["member"] = "member"
    object: Literal["organization.project.service_account"] = "organization.project.service_account"


class KeyMade(msgspec.Struct):
    """A key that was just made, and its value."""

    id: str
    name: str
    created_at: int
    value: str
    expires_at: int | None
    object: Literal["organization.project.service_account.api_key"] = "organization.project.service_account.api_key"


class KeyShown(msgspec.Struct):
    """A key of a project."""

    id: str
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    redacted_value: str
    scopes: tuple[str, ...]
    limits: Limit | None
    owner: dict[str, Any]
    owner_project_access: Literal["active"] = "active"
    object: Literal["organization.project.api_key"] = "organization.project.api_key"


class AdminKeyShown(msgspec.Struct, omit_defaults=False):
    """A key of an administrator; `value` where it was just made."""

    id: str
    name: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    redacted_value: str
    owner: dict[str, Any]
    value: str | UnsetType = UNSET
    object: Literal["organization.admin_api_key"] = "organization.admin_api_key"


class Deleted(msgspec.Struct):
    """Something that is no longer there."""

    id: str
    object: str
    deleted: bool = True


def project_shown(project: Project) -> ProjectShown:
    """A project on the wire."""
    status = "active" if project.archived_at is None else "archived"
    times = project.created_at, project.archived_at
    return ProjectShown(project.id, project.name, *times, status, project.static, project.weight)


def models_shown(project: Project) -> ModelsShown:
    """The models of a project on the wire."""
    models = project.models or ALL
    return ModelsShown(models.mode, models.ids)


def account_shown(account: Account, made: Made | UnsetType | None = UNSET) -> AccountShown:
    """A service account on the wire; with the key that was `made` with it, or None where none was."""
    key = made_shown(made) if isinstance(made, Made) else made
    return AccountShown(account.id, account.name, account.created_at, key)


def made_shown(made: Made) -> KeyMade:
    """A key that was just made."""
    return KeyMade(made.key.id, made.key.name, made.key.created_at, made.value, made.key.expires_at)


def key_shown(key: Key, account: Account | None, used: int | None) -> KeyShown:
    """A key of a project on the wire, whose it is and when it was last used."""
    owner: dict[str, Any] = {"type": "service_account"}
    if account is not None:
        owner["service_account"] = {
            "id": account.id,
            "name": account.name,
            "created_at": account.created_at,
            "role": "member",
        }
    return KeyShown(key.id, key.name, key.created_at, used, key.expires_at, key.redacted, key.scopes, key.limit, owner)


def admin_key_shown(key: Key, used: int | None, value: str | UnsetType = UNSET) -> AdminKeyShown:
    """A key of an administrator on the wire."""
    owner = {"type": "service_account", "object": "organization.service_account", "name": key.name, "role": "owner"}
    return AdminKeyShown(key.id, key.name, key.created_at, used, key.expires_at, key.redacted, owner, value)


class _Project(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    weight: float | UnsetType | None = UNSET
    external_key_id: Raw = ABSENT
    geography: Raw = ABSENT
    residency: Raw = ABSENT


class _Models(msgspec.Struct, forbid_unknown_fields=True):
    mode: str | None = None
    model_ids: list[str] | None = None


class _Account(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    create_service_account_only: bool | None = None
    expires_in_seconds: int | None = None
    role: str | None = None


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    scopes: list[str] | None = None
    expires_in_seconds: int | None = None
    limits: Raw | UnsetType = UNSET


_ELSEWHERE = ("external_key_id", "geography", "residency")
"""The fields of OpenAI's projects that mean nothing on one's own machines."""


def read_project(body: bytes) -> tuple[str, float | None]:
    """The name and the weight of a project to be made. Raises InvalidRequest."""
    sent = _read_project(body)
    return _name(sent.name), None if sent.weight is UNSET else sent.weight


def read_changed_project(body: bytes) -> ChangedProject:
    """The requested changes of a project. Raises InvalidRequest."""
    sent = _read_project(body)
    name = None if sent.name is None and sent.weight is not UNSET else _name(sent.name)
    return ChangedProject(name, sent.weight)


def _read_project(body: bytes) -> _Project:
    sent = decode(body, _Project)
    for name in _ELSEWHERE:
        if getattr(sent, name) != ABSENT:
            raise not_served(name, "…", "Leave it out: data is where this service runs.")
    if isinstance(sent.weight, float):
        checked_weight(sent.weight)
    return sent


def read_models(body: bytes) -> ModelPermissions:
    """The list of models that a project is to have. Raises InvalidRequest."""
    sent = decode(body, _Models)
    if sent.mode is None:
        raise missing("mode", "Give 'allow_list' or 'deny_list'.")
    if sent.model_ids is None:
        raise missing("model_ids", "Give a list of models.")
    return read_permissions(sent.mode, sent.model_ids)


def read_account(body: bytes) -> tuple[str, Wish | None]:
    """The name of a service account to be made, and its first key, if it is to have one. Raises InvalidRequest."""
    sent = decode(body, _Account)
    name, seconds = _name(sent.name), _seconds(sent.expires_in_seconds)
    if sent.role is not None:
        raise not_served("role", sent.role, "A new service account is a member. Leave it out.")
    if sent.create_service_account_only:
        if seconds is not None:
            message = "Without a key nothing expires: leave 'expires_in_seconds' out, or make a key."
            raise not_allowed(message, "expires_in_seconds")
        return name, None
    return name, Wish("Secret Key", seconds=seconds)


def read_renamed_account(body: bytes) -> str:
    """The new name of a service account. Raises InvalidRequest."""
    sent = decode(body, _Account)
    if sent.role not in (None, "member"):
        raise not_served("role", sent.role, "Service accounts are members: keys administer only as admin keys.")
    return _name(sent.name)


def read_key(body: bytes) -> Wish:
    """The requested properties of a new key. Raises InvalidRequest."""
    sent = decode(body or b"{}", _Key)
    scopes = _scopes(sent.scopes) or ()
    limit = _limit(sent.limits)
    return Wish(_name(sent.name or "Secret Key"), scopes, _seconds(sent.expires_in_seconds), limit or None)


def read_changed_key(body: bytes) -> ChangedKey:
    """The requested changes of a key. Raises InvalidRequest."""
    sent = decode(body, _Key)
    if sent.name is not None:
        raise not_served("name", sent.name, "A key keeps its name. Leave it out.")
    return ChangedKey(_scopes(sent.scopes), _seconds(sent.expires_in_seconds), _limit(sent.limits))


def read_admin_key(body: bytes) -> Wish:
    """The requested properties of a new administrator's key. Raises InvalidRequest."""
    sent = decode(body, _Key)
    if sent.scopes is not None:
        raise not_served("scopes", sent.scopes, "An administrator's key administers all. Leave it out.")
    if sent.limits is not UNSET:
        raise not_served("limits", "…", "Administering isn't limited. Leave it out.")
    return Wish(_name(sent.name), seconds=_seconds(sent.expires_in_seconds))


def _name(name: str | None) -> str:
    if name is None:
        raise missing("name", "Say what people are to call it.")
    return checked_name(name)


def _seconds(seconds: int | None) -> int | None:
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise invalid_value("expires_in_seconds", seconds, f"It should be 1 to {MAX_SECONDS}; without it, no end.")
    return seconds


def _limit(sent: Raw | UnsetType) -> Limit | UnsetType | None:
    """The limits of a key: those that are sent and no others; None for null."""
    if isinstance(sent, UnsetType):
        return UNSET
    return None if sent == ABSENT else Limit(**read_limits(sent, "limits"))


def _scopes(scopes: list[str] | None) -> tuple[str, ...] | None:
    if scopes is None:
        return None
    if len(scopes) > MAX_SCOPES:
        raise invalid_value("scopes", len(scopes), f"There are {MAX_SCOPES} of them.")
    return read_scopes(scopes)


ID = f"rl-{WHOLE_PROJECT}"
"""The id of a project's limits."""


class LimitShown(Limit, frozen=True, kw_only=True, omit_defaults=False):
    """The limits of a project, which are of all models together."""

    id: str = ID
    model: str = WHOLE_PROJECT
    object: Literal["project.rate_limit"] = "project.rate_limit"


_LIMITED_ELSEWHERE = (
    "max_requests_per_1_day",
    "batch_1_day_max_input_tokens",
    "max_audio_megabytes_per_1_minute",
    "max_images_per_1_minute",
)
"""OpenAI's limits that aren't there here."""

_SentLimits: Any = msgspec.defstruct(
    "SentLimits",
    [
        *((name, int | UnsetType | None, UNSET) for name in LIMITS),
        *((name, Raw, ABSENT) for name in _LIMITED_ELSEWHERE),
    ],
    forbid_unknown_fields=True,
)


def read_limits(body: bytes | Raw, where: str = "") -> dict[str, int | None]:
    """The limits that are sent, by their names. Raises InvalidRequest."""
    sent, prefix = decode(body, _SentLimits, where), f"{where}." if where else ""
    for name in _LIMITED_ELSEWHERE:
        if getattr(sent, name) != ABSENT:
            raise not_served(prefix + name, "…", "There is no such limit here. Leave it out.")
    found = {name: getattr(sent, name) for name in LIMITS if getattr(sent, name) is not UNSET}
    if not found:
        raise missing(prefix + LIMITS[0], f"Give it, or another one of {', '.join(LIMITS)}.")
    for name, number in found.items():
        if number is not None and not 0 <= number <= MAX_LIMIT:
            raise invalid_value(prefix + name, number, f"It should be 0 to {MAX_LIMIT}, or null for no limit.")
    return found
