"""Python in a process: the tool, its containers, and their routes."""

from collections.abc import Iterable
from time import time

from fastapi import APIRouter

from service.backoff import Backoff
from service.features.python.containers import CONTAINERS, Containers
from service.features.python.interpreter import CodeInterpreter
from service.features.sandbox.choose import sandbox_of
from service.features.sandbox.port import Sandbox
from service.features.sandbox.settings import LOCAL, SandboxSettings
from service.ports import Chore
from service.process import Feature, Offered, Parts
from service.settings.sources import variable
from store.history.records import TenantRecords

SANDBOX_AWAY = Backoff(1.0, 30.0)
"""The pauses in seconds between tries to use a sandbox that was away when this service began."""


class PythonFeature(Feature):
    """Python that a model writes."""

    tool_settings = {"code_interpreter": variable("sandbox")}

    def compose(self, parts: Parts) -> None:
        sandbox = sandbox_of(SandboxSettings.of(parts.settings))
        if sandbox is not None:
            run_in(sandbox, parts)

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        from service.features.python import routes

        return (routes.router,)


def run_in(sandbox: Sandbox, parts: Parts) -> None:
    """Run Python in a sandbox."""
    settings, store = SandboxSettings.of(parts.settings), parts.store
    # those of a sandbox of this process alone have its mark
    place = settings.sandbox if settings.sandbox not in ("", LOCAL) else f"{LOCAL} {store.token()}"
    again = None if place.startswith(LOCAL) else SANDBOX_AWAY
    containers = Containers(TenantRecords(store, CONTAINERS), sandbox, place, time, again)
    parts.tools.append(CodeInterpreter(containers, seconds=settings.tool_seconds, attached=lambda: parts.attachments))
    parts.chores.append(
        Chore("the sandbox", containers.start_later, start=containers.start, close=containers.sandbox.aclose)
    )


FEATURE = PythonFeature()
