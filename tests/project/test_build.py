"""What tells builds apart: a wheel says what it was built from, wherever it is installed; a checkout asks git."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from service.build import COMMIT_FILE, Build, commit_of, this_build
from tests.support import ROOT

SECONDS = 60


def git(folder: Path, *arguments: str) -> str:
    """What git says, without anybody's configuration."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder of a package that nobody says anything of."""
    folder = tmp_path / "checkout" / "service"
    folder.mkdir(parents=True)
    return folder


def test_a_build_is_shown_in_a_line() -> None:
    assert str(Build("0.1.0", "abc1234", "3.11.7")) == "harmonium 0.1.0 (commit abc1234, Python 3.11.7)"
    assert this_build().python == ".".join(map(str, sys.version_info[:3]))


def test_a_package_of_which_nobody_knows_the_commit_says_so(package: Path) -> None:
    assert commit_of(package) == "unknown"


def test_an_installed_package_says_what_its_wheel_says(package: Path) -> None:
    (package / COMMIT_FILE).write_text("abc1234\n")
    assert commit_of(package) == "abc1234"


def test_a_checkout_is_asked_and_not_what_an_earlier_build_left(package: Path) -> None:
    git(package.parent, "init", "-q")
    (package / COMMIT_FILE).write_text("abc1234\n")
    assert commit_of(package) == "unknown"  # nothing is committed yet
    git(package.parent, "commit", "-q", "--allow-empty", "-m", "first")
    assert commit_of(package) == git(package.parent, "rev-parse", "--short=7", "HEAD")


def test_an_environment_inside_of_another_repository_is_not_of_that_repository(package: Path) -> None:
    git(package.parents[1], "init", "-q")
    git(package.parents[1], "commit", "-q", "--allow-empty", "-m", "first")
    assert commit_of(package) == "unknown"


def test_a_wheel_carries_the_commit_that_its_builder_was_given(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "service", "store"):
        (source / name).symlink_to(ROOT / name)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    environment = {**os.environ, "COMMIT": "abc1234"}
    command = [sys.executable, "-c", build]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, timeout=SECONDS)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read(f"service/{COMMIT_FILE}") == b"abc1234\n"
