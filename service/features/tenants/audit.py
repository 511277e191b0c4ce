"""The audit log: who did what to which key, account and project. Never the value of a key, nor what anybody said.

An entry has the form of OpenAI's audit log, so its SDK reads it: the event's type, its actor, its project, and under
the name of the event the id of its object. Each is a line of the logger `harmonium.audit`, too.

Uses of wrong keys are in it, too, but so few that a caller who tries many pushes nothing else out of it.
"""

import asyncio
import logging
import re
from typing import Any, NamedTuple

import msgspec

from service.errors import invalid_value
from service.features.tenants.records import Project
from service.logs import Ration, event
from store.errors import StoreError
from store.registry import MOST_A_PAGE, STRANGERS, Registry, RegistryEntry

logger = logging.getLogger("harmonium.audit")

ENTRY_PREFIX = "audit_log-"
_ENTRY = re.compile(r"audit_log-([1-9][0-9]{0,15})", re.ASCII)

SECOND_US = 1_000_000

MOST_LOOKED_AT = 2_000
"""The most entries that one request looks at."""

MAX_TIME = 1 << 40
"""The latest time that somebody may ask for, in seconds."""

COMMAND_LINE = "command-line"
"""The actor where somebody did it on the machine."""

FROM_SETTINGS = "settings"
"""The actor with the administrator's key of the settings."""

NOBODY = "nobody"
"""The actor where nobody knows who it was."""


class Actor(msgspec.Struct, frozen=True):
    """The actor of an event: the id of a key, a tenant whose keys are in the settings, or one of the words above. It
    has the IP address of an actor of whom nothing else is known.
    """

    id: str
    account: str = ""
    address: str = ""

    @property
    def shown(self) -> dict[str, Any]:
        """The actor as an entry has it."""
        if self.id == NOBODY:
            return {"type": "session", "session": {"ip_address": self.address}}
        key: dict[str, Any] = {"id": self.id, "type": "service_account"}
        if self.account:
            key["service_account"] = {"id": self.account}
        return {"type": "api_key", "api_key": key}


class AuditEvent(msgspec.Struct, frozen=True):
    """An event: its type, such as `api_key.created`, its object, its project, the wish, and all else that OpenAI's log
    says of such an event.
    """

    type: str
    id: str
    project: Project | None = None
    data: dict[str, Any] | None = None
    about: dict[str, Any] | None = None

    def record(self, actor: Actor) -> bytes:
        """The entry of the log, without its id there, which has the time."""
        entry: dict[str, Any] = {"type": self.type, "actor": actor.shown}
        if self.project is not None:
            entry["project"] = {"id": self.project.id, "name": self.project.name}
        about: dict[str, Any] = {"id": self.id, **(self.about or {})}
        if self.data is not None:
            about["changes_requested" if self.type.endswith(".updated") else "data"] = self.data
        return msgspec.json.encode({**entry, self.type: about})

    def log(self, actor: Actor) -> None:
        """Say it in the log."""
        project = None if self.project is None else self.project.id
        event(logger, logging.INFO, self.type, object_id=self.id, project_id=project, actor=actor.address or actor.id)


async def note(registry: Registry, share: str, actor: Actor, happened: AuditEvent) -> None:
    """Add an event that has happened to a share of the log (`Registry.note`), and log it. Where the store takes no
    entry, that is logged, and nothing else happens.
    """
    happened.log(actor)
    try:
        await registry.note(share, happened.record(actor))
    except StoreError as error:
        message, reason = "no entry was made in the audit log", type(error).__name__
        event(logger, logging.WARNING, message, event_type=happened.type, object_id=happened.id, reason=reason)


def done_by(entry: dict[str, Any]) -> str:
    """The actor of an entry: the id of a key, or an IP address."""
    actor = entry["actor"]
    return actor["api_key"]["id"] if "api_key" in actor else actor["session"]["ip_address"]


class AuditFilter(msgspec.Struct, frozen=True):
    """The filter of entries; empty is all. Times are in seconds, both of them included."""

    types: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    first: int = 0
    last: int = MAX_TIME

    def has(self, entry: dict[str, Any]) -> bool:
        """Whether an entry is wanted, of whatever time."""
        key, session = (entry["actor"].get(kind, {}) for kind in ("api_key", "session"))
        actors = (key.get("id"), key.get("service_account", {}).get("id"), session.get("ip_address"))
        return (
            (not self.types or entry["type"] in self.types)
            and (not self.projects or entry.get("project", {}).get("id") in self.projects)
            and (not self.actors or not set(self.actors).isdisjoint(actors))
            and (not self.resources or entry[entry["type"]]["id"] in self.resources)
        )


class Entries(NamedTuple):
    """A page of the log, the newest first; whether there are more in its direction; and the entries before and behind
    which the next pages are.
    """

    shown: list[dict[str, Any]]
    more: bool
    first: str | None
    last: str | None


async def page_of_entries(
    registry: Registry, wanted: AuditFilter, *, after: str | None, before: str | None = None, limit: int
) -> Entries:
    """The entries of the log that are wanted: the newest, or those right behind the one with the id `after`, which are
    older. With `before` alone those right before that, which are newer; with both none from there on.

    It ends after MOST_LOOKED_AT entries, wherever it is by then. Raises InvalidRequest for an `after` or a `before`
    that is no entry's id, StoreUnavailable.
    """
    first, last = wanted.first * SECOND_US, wanted.last * SECOND_US + SECOND_US - 1
    if after is not None:
        last = min(last, _us_of(after, "after") - 1)
    if before is not None:
        first = max(first, _us_of(before, "before") + 1)
    ascending = before is not None and after is None
    shown, more, seen = await _looked_for(registry, wanted, first, last, limit, ascending=ascending)
    if ascending:
        shown.reverse()
        return Entries(shown, more, seen or before, shown[-1]["id"] if shown else before)
    return Entries(shown, more, shown[0]["id"] if shown else None, seen or after)


async def _looked_for(
    registry: Registry, wanted: AuditFilter, first: int, last: int, limit: int, *, ascending: bool
) -> tuple[list[dict[str, Any]], bool, str | None]:
    """The entries that are wanted among those of some µs, whether there may be more, and which was looked at last."""
    found: list[dict[str, Any]] = []
    looked_at, seen = 0, None
    while looked_at < MOST_LOOKED_AT:
        entries = await registry.entries(first=first, last=last, ascending=ascending)
        for entry in entries:
            shown = _as_dict(entry)
            if wanted.has(shown):
                if len(found) == limit:
                    return found, True, seen
                found.append(shown)
            seen = shown["id"]
            if ascending:
                first = entry.us + 1
            else:
                last = entry.us - 1
        looked_at += len(entries)
        if len(entries) < MOST_A_PAGE:
            return found, False, seen
    return found, True, seen


def _as_dict(entry: RegistryEntry) -> dict[str, Any]:
    return {
        "id": f"{ENTRY_PREFIX}{entry.us}",
        "object": "organization.audit_log",
        "effective_at": entry.us // SECOND_US,
        **msgspec.json.decode(entry.record),
    }


def _us_of(id: str, param: str) -> int:
    """The time of an entry, in µs, by its id."""
    match = _ENTRY.fullmatch(id)
    if match is None:
        page = "before" if param == "after" else "after"
        raise invalid_value(param, id, f"Give the {'last_id' if param == 'after' else 'first_id'} of the page {page}.")
    return int(match[1])


SECONDS = 60.0
"""In so long a process notes one wrong key, and how many there were besides since the last one that it noted."""


class FailedLogins:
    """A process's notes of wrong keys: from where one came, and never the key."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ration = Ration(1, seconds=SECONDS)
        self._noting: set[asyncio.Task[None]] = set()

    def note(self, request_id: str, address: str) -> None:
        """Note that somebody presented a wrong key. Nobody waits for the entry."""
        others = self._ration.take()
        if others is None:
            return
        about = {"error_code": "invalid_api_key", "error_message": "Incorrect API key provided.", "others": others}
        happened = AuditEvent("login.failed", request_id, about=about)
        noting = asyncio.create_task(note(self._registry, STRANGERS, Actor(NOBODY, address=address), happened))
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
