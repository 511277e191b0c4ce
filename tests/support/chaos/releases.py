"""Other releases of this project, taken out of the repository's history, to run beside this one."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support import ROOT


def extracted(commit: str, folder: Path) -> Path:
    """The folder, with the packages of a commit; the test is skipped where the history doesn't have it."""
    archive = subprocess.run(["git", "archive", commit, "service", "store"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this copy has no history that goes back to {commit}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder
