"""Disks of a few MB, which tests may fill, where this machine lets us mount one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.guard import free_bytes

MIB = 1 << 20


def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """A disk in memory, as a fixture yields it; the test is skipped where mounting one is not permitted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, *, but: int) -> Path:
    """Take all the room of a disk but so many bytes; the file that takes it."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        while (left := free_bytes(disk) - but) > 0:
            file.write(b"x" * min(left, MIB))
            file.flush()
    return filler
