"""What pyproject.toml can't say of the wheel: the commit that it is built from, the documents that it serves, and a
description whose links work.

The commit is COMMIT of the environment, else what git says of this checkout. The description is README.md without its
links to files, which nobody has beside an installed package.
"""

import os
import re
import runpy
import shutil
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
            documents = Path(self.build_lib, "service", "web", "pages", "documents")
            shutil.rmtree(documents, ignore_errors=True)
            for path in sorted(ROOT.glob("docs/**/*.md")):
                kept = documents / path.relative_to(ROOT / "docs")
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, kept)


def description() -> str:
    """README.md without its pictures, where a link that leads to a file or a heading is only its words."""
    text = re.sub(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n*", "", (ROOT / "README.md").read_text())
    return re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", text)


setup(
    cmdclass={"build_py": BuildWithCommit},
    long_description=description(),
    long_description_content_type="text/markdown",
)
