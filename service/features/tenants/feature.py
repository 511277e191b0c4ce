"""Tenants in a process: their entrance, chores, routes of the admin API, and commands."""

from collections.abc import Iterable, Mapping
from time import time
from typing import Any

import typer
from fastapi import APIRouter

from service.commands.arguments import KEEP
from service.features.tenants.audit import COMMAND_LINE, Actor, AuditEvent, note
from service.features.tenants.directory import open_directory
from service.features.tenants.entrance import CountingEntrance, LimitingEntrance, ProjectEntrance
from service.features.tenants.keyring import KeyRing
from service.features.tenants.limits import Limit, Limiter
from service.features.tenants.settings import TenantSettings
from service.features.tenants.settling import tenant_chores
from service.features.tenants.usage import Tally
from service.process import Feature, Offered, Parts
from service.responses.service import Service
from store.history.history import ConversationHistoryStore
from store.limits import Limits
from store.registry import ADMINISTRATORS, Registry
from store.spending import Spending

RESERVED_SECONDS = 30.0
"""After so many seconds without a word of a response, somebody looks whether what it reserved of limits is to be
settled; its place among those at once is free after twice as long."""

USUAL_TOKENS = 512
"""How many tokens a tenant's response is thought to write before any has ended."""


class TenantsFeature(Feature):
    """Tenants."""

    def compose(self, parts: Parts) -> None:
        parts.entrance = entrance_of(parts)
        parts.chores += tenant_chores(parts.entrance)

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        if not offered.administers:
            return ()
        from service.features.tenants import routes

        return (routes.router,)

    def state(self, service: Service, admission: Any) -> Mapping[str, object]:
        return {"projects": service.tenants.entrance}

    async def note(
        self, store: ConversationHistoryStore, type: str, id: str, data: Mapping[str, object] | None = None
    ) -> None:
        event = AuditEvent(type, id, data=None if data is None else dict(data))
        await note(Registry(store), ADMINISTRATORS, Actor(COMMAND_LINE), event)

    def commands(self, app: typer.Typer) -> None:
        from service.commands.options import SettingsCommand
        from service.features.tenants.command import audit, keys, projects, usage

        app.add_typer(projects, name="projects", rich_help_panel=KEEP)
        app.add_typer(keys, name="keys", rich_help_panel=KEEP)
        app.command(rich_help_panel=KEEP, cls=SettingsCommand)(usage)
        app.command(rich_help_panel=KEEP, cls=SettingsCommand)(audit)


def entrance_of(parts: Parts) -> CountingEntrance:
    """The entrance of the tenants whose keys are in the settings and in the store."""
    settings, store, keys = TenantSettings.of(parts.settings), parts.store, parts.entrance.keys
    limits = Limits(store, held_seconds=RESERVED_SECONDS, usual_tokens=USUAL_TOKENS)
    limiter = Limiter(limits, Limit(**settings.tenant_limits), parts.loans, time)
    tally = Tally(Spending(store), away=lambda: store.server.health.away is not None)
    if settings.has_projects:
        directory = open_directory(store, lambda: keys.settings.static_tenants)
        ring = KeyRing(directory.registry, store.listening, time)
        return ProjectEntrance(keys, tally, limiter, directory, ring)
    return (LimitingEntrance if settings.has_limits else CountingEntrance)(keys, tally, limiter)


FEATURE = TenantsFeature()
