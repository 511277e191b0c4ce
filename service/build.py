"""Which build this is: the release, the commit that it was made from, and the Python that runs it.

A wheel carries its commit in a file, which setup.py writes; a checkout asks git. Never ask git anywhere else: an
environment may lie in a repository of somebody else's.
"""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

COMMIT_FILE = "commit.txt"
UNKNOWN = "unknown"
GIT_SECONDS = 2


class Build(NamedTuple):
    """The facts that tell one build from another."""

    version: str
    commit: str
    python: str

    def __str__(self) -> str:
        return f"harmonium {self.version} (commit {self.commit}, Python {self.python})"


@cache
def this_build() -> Build:
    """The build that is running. The first call may wait for git."""
    return Build(version("harmonium"), commit_of(Path(__file__).parent), platform.python_version())


def commit_of(package: Path) -> str:
    """The commit that `package`, this folder, was built from; `unknown` where nobody says."""
    if (package.parent / ".git").exists():
        ask = ("git", "-C", str(package), "rev-parse", "--short=7", "HEAD")
        try:
            return subprocess.run(ask, capture_output=True, text=True, timeout=GIT_SECONDS, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):  # no git here, or one that refuses: a folder of somebody else's
            return UNKNOWN
    try:
        return (package / COMMIT_FILE).read_text().strip() or UNKNOWN
    except OSError:
        return UNKNOWN
