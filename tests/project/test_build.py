"""What tells builds apart: a wheel says what it was built from, wherever it is installed; a checkout asks git."""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from service.build import COMMIT_FILE, commit_of
from store.codec import SHIPPED, file_of
from tests.support import ROOT
from tests.support.documents import links


def git(folder: Path, *arguments: str) -> str:
    """What git says, without anybody's configuration."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_an_installed_package_says_what_its_wheel_says_and_a_checkout_is_asked(tmp_path: Path) -> None:
    package = tmp_path / "checkout" / "service"
    package.mkdir(parents=True)
    (package / COMMIT_FILE).write_text("abc1234\n")
    assert commit_of(package) == "abc1234"
    git(package.parent, "init", "-q")
    assert commit_of(package) == "unknown"  # nothing is committed yet
    git(package.parent, "commit", "-q", "--allow-empty", "-m", "first")
    assert commit_of(package) == git(package.parent, "rev-parse", "--short=7", "HEAD")


def test_an_image_is_of_the_commit_that_git_s_files_name(tmp_path: Path) -> None:
    told = re.search(r'RUN (head=.*; \\\n.*COMMIT:-\$short\}") /opt', (ROOT / "Dockerfile").read_text())
    assert told is not None

    def named(folder: Path, **environment: str) -> str:
        command = ["sh", "-c", f"{told[1]}; echo $COMMIT"]
        env = {"PATH": os.environ["PATH"], **environment}
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()

    assert (named(tmp_path), named(tmp_path, COMMIT="abc1234")) == ("", "abc1234")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    for change in ("status", "pack-refs --all", "checkout -q --detach"):
        git(tmp_path, *change.split())
        assert named(tmp_path / ".git") == git(tmp_path, "rev-parse", "--short=7", "HEAD"), change


@pytest.fixture(scope="module")
def release() -> ModuleType:
    """scripts/release.py."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(release: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built of commit abc1234 where an earlier build is: twice, and each time the same bytes, as the sdist."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "docs", "service", "store"):
        (source / name).symlink_to(ROOT / name)
    stale = source / "build/lib/service/features/console/static/console-STALE.js"
    stale.parent.mkdir(parents=True)
    stale.touch()
    return cast(Path, release.build(source, tmp_path_factory.mktemp("out"), "abc1234", "1700000000")[0])


@pytest.mark.timeout(300)
def test_what_uv_installs_of_a_wheel_serves_and_goes_but_for_the_conversations(
    release: ModuleType, wheel: Path, tmp_path: Path
) -> None:
    there = release.Installation("uv", wheel, Path(sys.executable), tmp_path)
    there.install("--constraints", ROOT / "requirements/serve.txt")
    there.check()
    assert there.conversations.is_dir()
    (left := there.conversations.parent / "harmonium.txt").touch()
    with pytest.raises(release.ReleaseError, match=str(left)):
        there.remove()


@pytest.mark.parametrize(
    ("heading", "tried", "wrong"),
    [
        ("[Unreleased] - 0.1.0", False, True),
        ("[Unreleased] - 0.1.0", True, False),
        ("[0.1.0] - 2026-12-01", False, False),
        ("[0.0.9] - 2026-12-01", True, True),
    ],
)
def test_a_release_has_its_version_in_the_changelog_unless_it_is_only_tried(
    release: ModuleType, tmp_path: Path, heading: str, tried: bool, wrong: bool
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\nWords.\n\n## [0.0.8]\n")
    with pytest.raises(release.ReleaseError, match="CHANGELOG") if wrong else nullcontext():
        release.check_changelog(tmp_path, "0.1.0", tried=tried)


def test_readme_begins_with_the_wheel_of_this_release(wheel: Path) -> None:
    assert f"`uvx --from {wheel.name} harmonium serve`" in (ROOT / "README.md").read_text()


def in_wheel(wheel: Path, name: str) -> str:
    """The text of the one file whose path ends so."""
    with zipfile.ZipFile(wheel) as packed:
        (path,) = [each for each in packed.namelist() if each.endswith(name)]
        return packed.read(path).decode()


def test_a_wheel_carries_the_commit_that_its_builder_was_given_and_a_command(wheel: Path) -> None:
    assert in_wheel(wheel, f"service/{COMMIT_FILE}") == "abc1234\n"
    assert "harmonium = service.__main__:main" in in_wheel(wheel, ".dist-info/entry_points.txt")


def test_a_wheel_has_the_files_of_the_console_and_every_dictionary_that_stored_values_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = {name: packed.read(name) for name in packed.namelist()}
    shown = {Path(name).name for name in found if "/console/static/" in name}
    assert shown == {file.name for file in (ROOT / "service/features/console/static").iterdir()}
    for number in SHIPPED:
        assert found[f"store/dictionaries/{number}.zdict"] == file_of(number).read_bytes()


def test_a_wheel_s_description_is_readme_with_no_link_that_leads_nowhere(wheel: Path) -> None:
    metadata, _, text = in_wheel(wheel, ".dist-info/METADATA").partition("\n\n")
    assert "Description-Content-Type: text/markdown" in metadata
    assert text.startswith("# harmonium\n")
    assert "![" not in text
    assert [target for target in links(text) if not target.startswith("https://")] == []
    assert "[docs/" not in text
    assert '"content":[' in text, "what only looks like a link stays"
