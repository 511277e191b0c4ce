"""Sandboxes for tests: small limits, folders of their own."""

import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path

from service.sandbox.local import LocalSandbox, Places
from service.sandbox.port import Limits

MOST = Limits(memory_bytes=256 << 20, disk_bytes=4 << 20, files=50, seconds=20, cpu_seconds=60, output_chars=2_000)
PLACES = Places(sessions=4, tenant_sessions=3, idle_seconds=600)
TENANT = "ada"


@contextmanager
def folder_for_all() -> Generator[Path]:
    """A folder below which the users of sessions can come, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="harmonium-test-sandbox-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def local(base: Path, places: Places = PLACES, most: Limits = MOST) -> LocalSandbox:
    """One that forks sessions, not started yet."""
    return LocalSandbox(places, most, base)


async def parts(*content: bytes) -> AsyncIterator[bytes]:
    """A file's content as it comes over a network."""
    for part in content:
        yield part
