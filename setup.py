"""Writes the commit that is built into the wheel: COMMIT of the environment, else what git says of this checkout."""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
BUILD = runpy.run_path(str(ROOT / "service" / "build.py"))


class BuildWithCommit(build_py):
    """Copies the packages, and adds the file that says of what commit they are."""

    def run(self) -> None:
        """Build; an editable installation is the checkout itself, which has git."""
        super().run()
        if not self.editable_mode:
            commit = os.environ.get("COMMIT") or BUILD["commit_of"](ROOT / "service")
            Path(self.build_lib, "service", BUILD["COMMIT_FILE"]).write_text(f"{commit[:40]}\n")


setup(cmdclass={"build_py": BuildWithCommit})
