"""The sandbox that the settings name."""

from math import ceil
from typing import TYPE_CHECKING

from service.features.sandbox.port import Sandbox, SessionLimits
from service.features.sandbox.remote import RemoteSandbox
from service.features.sandbox.settings import LOCAL, SandboxSettings

if TYPE_CHECKING:
    from service.features.sandbox.local import LocalSandbox

BUSY_CELLS = 10
"""How many cells of a session may compute for as long as a cell may run, before its processor time is used up."""


def sandbox_of(settings: SandboxSettings) -> Sandbox | None:
    """The sandbox of a service, not started yet; None where the settings have none."""
    if settings.sandbox == LOCAL:
        return own_sandbox(settings)
    if not settings.sandbox:
        return None
    return RemoteSandbox(settings.sandbox, settings.sandbox_key.get_secret_value())


def own_sandbox(settings: SandboxSettings) -> "LocalSandbox":
    """A sandbox of this process, not started yet."""
    from service.features.sandbox.local import LocalSandbox, SessionPlaces  # for who has one

    limits = SessionLimits(
        memory_bytes=settings.sandbox_memory_bytes,
        disk_bytes=settings.sandbox_disk_bytes,
        seconds=settings.tool_seconds,
        cpu_seconds=ceil(BUSY_CELLS * settings.tool_seconds),
    )
    places = SessionPlaces(settings.sandbox_sessions, settings.sandbox_tenant_sessions)
    return LocalSandbox(places, limits)
