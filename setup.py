"""What pyproject.toml can't say of the wheel: the commit that it is built from, the documents that it serves, and a
description whose links work.

The commit is COMMIT of the environment, else what git says of this checkout. The description is README.md without its
links to files, which nobody has beside an installed package.
"""

import gzip
import os
import re
import runpy
import shutil
import tarfile
import time
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
BUILD = runpy.run_path(str(ROOT / "service" / "build.py"))


def commit() -> str:
    """The commit as a line."""
    return f"{(os.environ.get('COMMIT') or BUILD['commit_of'](ROOT / 'service'))[:40]}\n"


class BuildWithCommit(build_py):
    """Copies the packages, and adds the file that says of what commit they are."""

    def run(self) -> None:
        """Build; an editable installation is the checkout itself, which has git. Files of an earlier build go first."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, "service", BUILD["COMMIT_FILE"]).write_text(commit())
            documents = Path(self.build_lib, "service", "web", "pages", "documents")
            for path in sorted(ROOT.glob("docs/**/*.md")):
                kept = documents / path.relative_to(ROOT / "docs")
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, kept)


class SourceWithCommit(sdist):
    """Adds the commit, as no git is beside it. The documents come by MANIFEST.in."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Lay them in a folder."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, "service", BUILD["COMMIT_FILE"]).write_text(commit())

    def make_archive(self, base_name: str, format: str, root_dir=None, base_dir=None, owner=None, group=None) -> str:  # noqa: A002
        """Pack the folder. The same files are the same bytes: setuptools would pack the time and the user as well."""
        when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            mode = 0o755 if entry.isdir() else 0o644
            return entry.replace(mtime=when, mode=mode, uid=0, gid=0, uname="", gname="", deep=False)

        with (
            gzip.GzipFile(f"{base_name}.tar.gz", "wb", mtime=when) as packed,
            tarfile.open(mode="w", fileobj=packed) as tar,
        ):
            for path in (Path(base_dir), *sorted(Path(base_dir).rglob("*"))):
                tar.add(path, recursive=False, filter=plain)
        return path


def description() -> str:
    """README.md without its pictures, where a link that leads to a file or a heading is only its words."""
    text = re.sub(r"!\[[^\]]*\]\((?!https?://)[^)]*\)\n*", "", (ROOT / "README.md").read_text())
    return re.sub(r"\[([^\[\]]+)\]\((?!https?://)[^)]*\)", r"\1", text)


setup(
    cmdclass={"build_py": BuildWithCommit, "sdist": SourceWithCommit},
    long_description=description(),
    long_description_content_type="text/markdown",
)
