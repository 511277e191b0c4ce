"""The registry's records of projects, service accounts and keys, and the values of keys. Pure, but for chance.

Each record is found under its name, which begins with its kind. A release passes over the fields that a newer one
added, and keeps them in a change. So a new field that takes a right away needs a new layout (store/layout.py).

    sk-hm-        43 letters and digits, 256 bits of chance · 6 of their CRC-32       a project's key
    sk-hm-admin-  the same                                                            an administrator's

The checksum lets a scanner for secrets know a key that was published, and turns a typing error away before any look-up.
A value is shown once, when it is made. Only its digest is stored: a fast one will do, as a value has so much chance.
"""

import re
import secrets
from hashlib import sha256
from string import ascii_letters, digits
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from service.errors import invalid_value, missing
from service.features.tenants.limits import Limit
from service.features.tenants.permissions import ModelPermissions
from service.settings.core import LEAST_WEIGHT, MOST_WEIGHT
from store.registry import Change

T = TypeVar("T", bound="Record")

MAX_NAME_CHARS = 256

PROJECTS, ADMIN_KEYS = "projects", "admin-keys"
"""The lists of all projects and of all administrators' keys."""


class Record(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The base of all records."""

    id: str

    @property
    def stored(self) -> bytes:
        """The bytes that `decode_to_change` had; empty for any other."""
        return vars(self).get("stored", b"")

    @property
    def place(self) -> str:
        """Its name in the registry."""
        return place_of(type(self), self.id)

    @property
    def keys(self) -> str:
        """The list of its keys, where it may have some."""
        return f"keys/{self.id}"


class Project(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A tenant. The keys of a `static` one are in the settings, and the registry has only changes of it. Without
    `models` it may use all; without `limit`, `weight` or `trajectories` the settings say these. Times are in seconds.
    """

    name: str
    created_at: int
    archived_at: int | None = None
    static: bool = False
    models: ModelPermissions | None = None
    limit: Limit | None = None
    weight: float | None = None
    trajectories: bool | None = None

    @property
    def accounts(self) -> str:
        """The list of its service accounts."""
        return f"accounts/{self.id}"


PROJECT_PREFIX = "proj_"
"""The prefix of the ids of projects that were made here. A tenant of the settings whose name has it is one of those."""


def static_project(tenant: str) -> Project:
    """The project of a tenant with keys in the settings that has no record in the registry yet. Nobody noted when it
    was made.
    """
    return Project(id=tenant, name=tenant, created_at=0, static=True)


class Account(Record, frozen=True, kw_only=True):
    """A service account: the holder of keys in a project."""

    project: str
    name: str
    created_at: int


class Key(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A key, without its value: `digest` is that of it. An administrator's has neither project nor account."""

    digest: str
    redacted: str
    name: str
    created_at: int
    project: str = ""
    account: str = ""
    scopes: tuple[str, ...] = ()
    expires_at: int | None = None
    limit: Limit | None = None

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


ID_DIGITS = 24
"""How many hex digits of its digest are a key's id: nobody finds two keys with the same, nor the digest from it."""


def key_id(digest: str) -> str:
    """The id of the key with a digest."""
    return f"key_{digest[:ID_DIGITS]}"


_KINDS: dict[type[Record], str] = {Project: "project", Account: "account", Key: "key"}


def place_of(kind: type[Record], id: str) -> str:
    """The name in the registry of a record of a kind."""
    return f"{_KINDS[kind]}/{id}"


def checked_name(name: str | None) -> str:
    """A name that people can read on one line, without blanks around it. Raises InvalidRequest."""
    if name is None:
        raise missing("name", "Give it a name.")
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        expected = f"It should have 1 to {MAX_NAME_CHARS} characters that can be printed, on one line."
        raise invalid_value("name", name, expected)
    return name


def checked_weight(weight: float) -> float:
    """The weight itself. Raises InvalidRequest where it is out of bounds."""
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise invalid_value(
            "weight",
            weight,
            f"It should be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:,}; the default is 1, and null removes it.",
        )
    return weight


def decode(record: bytes, kind: type[T]) -> T | None:
    """A record of the registry; None where there is none."""
    return msgspec.json.decode(record, type=kind) if record else None


def decode_to_change(record: bytes, kind: type[T]) -> T | None:
    """The same, with its bytes, of which `change_of` makes a change."""
    found = decode(record, kind)
    if found is not None:
        vars(found)["stored"] = record
    return found


def change_of(before: Record | None, after: Record | None) -> Change:
    """The change of the registry that puts a record in the place of another one, each of which may be none."""
    record = after or before
    assert record is not None
    stored = b"" if before is None else before.stored
    if before is None or after is None:
        return Change(record.place, stored, b"" if after is None else msgspec.json.encode(after))
    made = _merge(msgspec.json.decode(stored), msgspec.to_builtins(before), msgspec.to_builtins(after))
    return Change(record.place, stored, msgspec.json.encode(made))


def _merge(stored: Any, before: Any, after: Any) -> dict[str, Any]:
    """A stored object, changed where `before` and `after` differ. It keeps the members that are in neither."""
    made = {name: value for name, value in stored.items() if name in after or name not in before}
    for name, value in after.items():
        if (old := before.get(name)) != value:
            made[name] = _merge(made[name], old, value) if {type(old), type(value)} == {dict} else value
    return made


# --- the values of keys ---

PREFIX = "sk-hm-"
ADMIN_PREFIX = "sk-hm-admin-"

CHANCE_CHARS = 43
"""62 to this power is more than 2 to the 256th."""

CHECK_CHARS = 6
ALPHABET = digits + ascii_letters

SHOWN_START, SHOWN_END = len(PREFIX) + 3, 4
"""How many characters of a key are shown of its start and of its end, which tell it from others."""

_FORM = re.compile(rb"(sk-hm-(?:admin-)?[0-9A-Za-z]{%d})([0-9A-Za-z]{%d})" % (CHANCE_CHARS, CHECK_CHARS))


def new_value(prefix: str = PREFIX) -> str:
    """A key that nobody else has."""
    body = prefix + "".join(secrets.choice(ALPHABET) for _ in range(CHANCE_CHARS))
    return body + _check(body.encode())


def is_whole(value: bytes) -> bool:
    """Whether a value can be one that was made here: it has the form, and its checksum."""
    match = _FORM.fullmatch(value)
    return match is not None and match[2].decode() == _check(match[1])


def digest_of(value: bytes) -> str:
    """The digest of a value, which is stored in its place: SHA-256 in hex."""
    return sha256(value).hexdigest()


def redact(value: str) -> str:
    """The part of a value by which its owner knows it."""
    start = SHOWN_START if value.startswith(PREFIX) else 0
    return f"{value[:start]}...{value[-SHOWN_END:]}"


def _check(body: bytes) -> str:
    number, text = crc32(body), ""
    for _ in range(CHECK_CHARS):
        number, digit = divmod(number, len(ALPHABET))
        text = ALPHABET[digit] + text
    return text
