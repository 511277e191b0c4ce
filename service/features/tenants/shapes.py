"""The admin API on the wire: its objects, and the bodies of its routes. A key's value is in one answer only."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.decoding import ABSENT, Json, decode
from service.errors import invalid_value, missing, not_allowed, not_served
from service.features.tenants.directory import ChangedKey, ChangedProject, Made, Wish
from service.features.tenants.limits import WHOLE_PROJECT, Limit, fill_limit
from service.features.tenants.permissions import ALL, ModelPermissions, read_permissions, read_scopes
from service.features.tenants.records import Account, Key, Project, checked_name, checked_weight
from service.features.tenants.settings import LIMITS, MAX_LIMIT

MAX_SECONDS = 10 * 366 * 86_400
"""The latest that a key may expire: in ten years. One that is to be for ever has no end."""

LIMITS_ID = f"rl-{WHOLE_PROJECT}"
"""The id of a project's limits."""


def project_shown(project: Project) -> Json:
    """A project; `static` is one whose keys are in the settings, which say the `weight` and `trajectories` of null."""
    return {
        "id": project.id,
        "name": project.name,
        "created_at": project.created_at,
        "archived_at": project.archived_at,
        "status": "active" if project.archived_at is None else "archived",
        "static": project.static,
        "weight": project.weight,
        "trajectories": project.trajectories,
        "object": "organization.project",
    }


def models_shown(project: Project) -> Json:
    """The models that a project may use."""
    models = project.models or ALL
    return {"mode": models.mode, "model_ids": models.ids, "object": "project.model_permissions"}


def limits_shown(project: Project, default: Limit) -> Json:
    """The limits of a project, of all models together: its own, and the default's where it has none."""
    limits = {name: getattr(fill_limit(project.limit, default), name) for name in LIMITS}
    return limits | {"id": LIMITS_ID, "model": WHOLE_PROJECT, "object": "project.rate_limit"}


def account_shown(account: Account, made: Made | UnsetType | None = UNSET) -> Json:
    """A service account; with the key that was `made` with it, or None where none was."""
    return {
        "id": account.id,
        "name": account.name,
        "created_at": account.created_at,
        **({} if made is UNSET else {"api_key": made and made_shown(made)}),
        "role": "member",
        "object": "organization.project.service_account",
    }


def made_shown(made: Made) -> Json:
    """A key that was just made, and its value."""
    return {
        "id": made.key.id,
        "name": made.key.name,
        "created_at": made.key.created_at,
        "value": made.value,
        "expires_at": made.key.expires_at,
        "object": "organization.project.service_account.api_key",
    }


def key_shown(key: Key, account: Account | None, used: int | None) -> Json:
    """A key of a project, whose it is and when it was last used."""
    owner: Json = {"type": "service_account"}
    if account is not None:
        shown = {"id": account.id, "name": account.name, "created_at": account.created_at, "role": "member"}
        owner["service_account"] = shown
    return {
        **_any_key_shown(key, used),
        "scopes": key.scopes,
        "limits": key.limit,
        "owner": owner,
        "owner_project_access": "active",
        "object": "organization.project.api_key",
    }


def admin_key_shown(key: Key, used: int | None, value: str = "") -> Json:
    """A key of an administrator; with its `value` where it was just made."""
    owner = {"type": "service_account", "object": "organization.service_account", "name": key.name, "role": "owner"}
    return {
        **_any_key_shown(key, used),
        "owner": owner,
        **({"value": value} if value else {}),
        "object": "organization.admin_api_key",
    }


def _any_key_shown(key: Key, used: int | None) -> Json:
    return {
        "id": key.id,
        "name": key.name,
        "created_at": key.created_at,
        "last_used_at": used,
        "expires_at": key.expires_at,
        "redacted_value": key.redacted,
    }


def deletion(id: str, kind: str) -> Json:
    """Something that is no longer there."""
    return {"id": id, "object": f"{kind}.deleted", "deleted": True}


class _Project(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    weight: float | UnsetType | None = UNSET
    trajectories: bool | UnsetType | None = UNSET
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


def read_project(body: bytes) -> tuple[str, float | None, bool | None]:
    """The name and the weight of a project to be made, and whether its turns have notes. Raises InvalidRequest."""
    sent = _read_project(body)
    name, weight, notes = checked_name(sent.name), sent.weight, sent.trajectories
    return name, None if weight is UNSET else weight, None if notes is UNSET else notes


def read_changed_project(body: bytes) -> ChangedProject:
    """The requested changes of a project. Raises InvalidRequest."""
    sent = _read_project(body)
    others = ChangedProject(weight=sent.weight, trajectories=sent.trajectories)
    return others if sent.name is None and others != ChangedProject() else others._replace(name=checked_name(sent.name))


def _read_project(body: bytes) -> _Project:
    sent = decode(body, _Project)
    for name in _ELSEWHERE:
        if getattr(sent, name) != ABSENT:
            raise not_served(name, "…", "Leave it out: all data is stored where this service runs.")
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
    name, seconds = checked_name(sent.name), _seconds(sent.expires_in_seconds)
    if sent.role is not None:
        raise not_served("role", sent.role, "A new service account is a member. Leave it out.")
    if sent.create_service_account_only:
        if seconds is not None:
            message = "Only a key expires: leave 'expires_in_seconds' out, or create a key."
            raise not_allowed(message, "expires_in_seconds")
        return name, None
    return name, Wish("Secret Key", seconds=seconds)


def read_renamed_account(body: bytes) -> str:
    """The new name of a service account. Raises InvalidRequest."""
    sent = decode(body, _Account)
    if sent.role not in (None, "member"):
        raise not_served("role", sent.role, "Service accounts are members: keys administer only as admin keys.")
    return checked_name(sent.name)


def read_key(body: bytes) -> Wish:
    """The requested properties of a new key. Raises InvalidRequest."""
    sent = decode(body or b"{}", _Key)
    scopes, limit = read_scopes(sent.scopes or ()), _limit(sent.limits)
    return Wish(checked_name(sent.name or "Secret Key"), scopes, _seconds(sent.expires_in_seconds), limit or None)


def read_changed_key(body: bytes) -> ChangedKey:
    """The requested changes of a key. Raises InvalidRequest."""
    sent = decode(body, _Key)
    if sent.name is not None:
        raise not_served("name", sent.name, "A key's name can't change. Leave it out.")
    scopes = None if sent.scopes is None else read_scopes(sent.scopes)
    return ChangedKey(scopes, _seconds(sent.expires_in_seconds), _limit(sent.limits))


def read_admin_key(body: bytes) -> Wish:
    """The requested properties of a new administrator's key. Raises InvalidRequest."""
    sent = decode(body, _Key)
    if sent.scopes is not None:
        raise not_served("scopes", sent.scopes, "An administrator's key has all rights. Leave it out.")
    if sent.limits is not UNSET:
        raise not_served("limits", "…", "Administering isn't limited. Leave it out.")
    return Wish(checked_name(sent.name), seconds=_seconds(sent.expires_in_seconds))


def _seconds(seconds: int | None) -> int | None:
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise invalid_value(
            "expires_in_seconds", seconds, f"It should be 1 to {MAX_SECONDS}; without it, the key never expires."
        )
    return seconds


def _limit(sent: Raw | UnsetType) -> Limit | UnsetType | None:
    """The limits of a key: those that are sent and no others; None for null."""
    if isinstance(sent, UnsetType):
        return UNSET
    return None if sent == ABSENT else Limit(**read_limits(sent, "limits"))


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
