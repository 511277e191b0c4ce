"""Sandboxes for tests: small limits, folders of their own."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from service.features.sandbox.local import LocalSandbox, SessionPlaces
from service.features.sandbox.port import SessionLimits
from tests.support.service.process import Process

MOST = SessionLimits(
    memory_bytes=256 << 20, disk_bytes=4 << 20, files=50, seconds=60, cpu_seconds=60, output_chars=2_000
)
PLACES = SessionPlaces(sessions=4, tenant_sessions=3, idle_seconds=600)
TENANT = "ada"


@contextmanager
def folder_for_all() -> Generator[Path]:
    """A folder below which the users of sessions can come, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="harmonium-test-sandbox-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@contextmanager
def bare(places: SessionPlaces = PLACES) -> Generator[LocalSandbox]:
    """One whose sessions have the standard library alone: NumPy, pandas and Matplotlib take most of a start."""
    with folder_for_all() as base, patch.object(sys, "executable", sys._base_executable):
        yield local(base, places)


def local(base: Path, places: SessionPlaces = PLACES, most: SessionLimits = MOST) -> LocalSandbox:
    """One that forks sessions, not started yet."""
    return LocalSandbox(places, most, base)


def folder_in(base: Path) -> Path:
    """The folder of the sessions of a process for which `base` has temporary files."""
    return base / f"harmonium-sandbox-{os.getuid()}"


class SandboxProcess(Process):
    """`harmonium sandbox`, with the same limits."""

    def __init__(self, folder: Path, base: Path, **settings: object) -> None:
        """Starts it; `base` has the folders of its sessions."""
        self.listen = f"unix://{base}/sandbox.sock"
        defaults: dict[str, object] = {
            "sandbox_listen": self.listen,
            "sandbox_sessions": PLACES.sessions,
            "sandbox_tenant_sessions": PLACES.tenant_sessions,
            "tool_seconds": MOST.seconds,
            "sandbox_memory_bytes": MOST.memory_bytes,
            "sandbox_disk_bytes": MOST.disk_bytes,
        }
        with patch.dict(os.environ, {"TMPDIR": str(base)}):
            super().__init__(folder, "sandbox", **(defaults | settings))

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log
        with (self._folder / "log").open("rb") as log:
            log.seek(self._logged)
            return b"sandbox ready" in log.read()


async def parts(*content: bytes) -> AsyncIterator[bytes]:
    """A file's content as it comes over a network."""
    for part in content:
        yield part
