"""A feature's folder that is away takes nothing else with it: the service starts, creates, streams and continues."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.process import FEATURES
from tests.support import ROOT

SECONDS = 60.0
COLLECT_SECONDS = 300
"""A machine that does other things, too, takes ten times as long as one that does not."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the service, beside the store, the tests and the benchmarks."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "service", folder / "service")
    for name in ("store", "tests", "bench", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_list_has_each_folder_behind_those_that_it_needs() -> None:
    folders = {path.parent.name for path in (ROOT / "service/features").glob("*/__init__.py")}
    assert FEATURES.keys() == folders
    names = [*FEATURES]
    assert all(names.index(each) < names.index(name) for name, needed in FEATURES.items() for each in needed)


def test_the_import_contract_has_what_the_list_says_of_them() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (listed,) = (each["ignore_imports"] for each in contracts if each["type"] == "independence")
    pairs = {f"service.features.{a}.** -> service.features.{b}.**" for a, needed in FEATURES.items() for b in needed}
    assert set(listed) == pairs


RUNS = 5
"""So many runs take all features away, some at once; the long form takes each away alone."""

TOGETHER = [[*FEATURES][first::RUNS] for first in range(RUNS)]
ALONE = [pytest.param([name], marks=pytest.mark.full) for name in FEATURES]


@contextmanager
def without(copy: Path, names: Iterable[str]) -> Iterator[None]:
    """Features' folders are away until the end of the block."""
    (away := copy / "away").mkdir()
    for name in names:
        (copy / "service/features" / name).rename(away / name)
    try:
        yield
    finally:
        for folder in away.iterdir():
            folder.rename(copy / "service/features" / folder.name)
        away.rmdir()


@pytest.mark.parametrize("names", [*TOGETHER, *ALONE], ids="+".join)
def test_the_service_serves_without_them(copy: Path, names: Sequence[str], redis_url: str) -> None:
    with without(copy, names):
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.service.plainly", redis_url],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert ran.returncode == 0, ran.stderr


def test_a_folder_of_which_only_caches_are_left_is_away(copy: Path) -> None:
    folder, away = copy / "service/features/client", copy / "away"
    folder.rename(away)
    (folder / "__pycache__").mkdir(parents=True)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "service", "settings"],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, ran.stderr
    finally:
        shutil.rmtree(folder)
        away.rename(folder)


@pytest.mark.timeout(COLLECT_SECONDS + 20)
def test_the_tests_of_the_core_and_the_store_are_collected_without_any(copy: Path) -> None:
    command = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/core", "tests/store"]
    with without(copy, FEATURES):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=COLLECT_SECONDS,
        )
    assert ran.returncode == 0, ran.stdout
