"""The sandbox that the settings name."""

from pathlib import Path
from typing import TYPE_CHECKING

from service.sandbox.port import Limits, Sandbox
from service.settings.sandbox import LOCAL, SandboxSettings

if TYPE_CHECKING:
    from service.sandbox.local import LocalSandbox


def sandbox_of(settings: SandboxSettings) -> Sandbox | None:
    """The sandbox of a service, not started yet; None where the settings have none."""
    if settings.sandbox == LOCAL:
        return own_sandbox(settings)
    if not settings.sandbox:
        return None
    from service.sandbox.remote import RemoteSandbox  # imports aiohttp, which no other service needs

    return RemoteSandbox(settings.sandbox, settings.sandbox_key.get_secret_value())


def own_sandbox(settings: SandboxSettings) -> "LocalSandbox":
    """A sandbox of this process, not started yet."""
    from service.sandbox.local import LocalSandbox, Places  # for who has one

    places = Places(settings.sandbox_sessions, settings.sandbox_tenant_sessions, settings.sandbox_idle_seconds)
    return LocalSandbox(places, limits_of(settings), Path(settings.sandbox_dir) if settings.sandbox_dir else None)


def limits_of(settings: SandboxSettings) -> Limits:
    """What a session may take."""
    return Limits(
        memory_bytes=settings.sandbox_memory_bytes,
        disk_bytes=settings.sandbox_disk_bytes,
        files=settings.sandbox_files,
        seconds=settings.sandbox_cell_seconds,
        cpu_seconds=settings.sandbox_cpu_seconds,
        output_chars=settings.sandbox_output_chars,
        idle_seconds=settings.sandbox_idle_seconds,
    )
