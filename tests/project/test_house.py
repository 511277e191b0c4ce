"""The budget of the house (scripts/house.py): the map of features, what is counted; and how `scripts/check` ends."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import ROOT


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "scripts/house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_pattern_of_the_map_names_files_and_no_file_has_two_features(house: ModuleType) -> None:
    paths = [path for path in house.texts_in_git() if path.startswith(("service/", "store/")) and path.endswith(".py")]
    features = house.feature_map()
    assert [
        each for feature in features for each in feature.paths if not any(house.within(p, each) for p in paths)
    ] == []
    assert [path for path in paths if sum(path in feature for feature in features) > 1] == []


def test_the_files_that_a_create_enters_are_watched(house: ModuleType) -> None:
    watch = house.Watch()
    asyncio.run(house.create(watch))
    assert {"service/web/gate.py", "store/history/history.py"} <= watch.entered


TREE = {
    "service/app.py": "from service.tools.search import Search\n",
    "service/run.py": "def run():\n    from .tools import search, port\n",
    "service/tools/__init__.py": "",
    "service/tools/port.py": "class Tool: ...\n",
    "service/tools/search.py": "from .port import Tool\nfrom ..run import run\nclass Tool: ...\n",
    "store/redis/lua/append.lua": "return 1\n",
    "docs/configuration.md": "| `HARMONIUM_A` | a |\n",
    "docs/decisions/0001-a.md": "A.\n",
    "tests/test_run.py": "\n" * 20,
}


def test_the_table_counts_what_its_rows_say(house: ModuleType) -> None:
    features = [house.Feature("search", ("service/tools/search.py",), 2)]
    python = {path: text for path, text in TREE.items() if path.endswith(".py") and path.startswith("service/")}
    assert house.arrows(python, features) == {
        ("search", "service/app.py", "service/tools/search.py"),
        ("search", "service/run.py", "service/tools/search.py"),
    }
    rows = house.rows(TREE, features, {"service/run.py", "service/tools/search.py"})
    assert {row.name: row.now for row in rows} == {
        "arrows from the core to features": 2,
        "lines of Python in the core": 4,
        "lines of Python, service + store": 7,
        "unused features' files in a create": 1,
        "features over their number": 1,
        "type names that mean two things": 1,
        "lines of Lua by hand": 1,
        "lines of tests": 20,
        "knots between folders": 1,
        "settings": 1,
        "pages of docs": 1,
        "decisions": 1,
    }


def test_a_new_feature_brings_its_lines_to_the_product_goal(house: ModuleType) -> None:
    features = [house.Feature("files", ("service/tools/search.py",), 900)]
    goals = {row.name: row.goal for row in house.rows(TREE, features, set())}
    assert goals["lines of Python, service + store"] == 76_900


PROGRAMS = ("ruff", "pyright", "lint-imports", "python")


@pytest.mark.parametrize(
    ("failing", "status", "last"),
    [
        ((), 0, "scripts/check: nothing is broken"),
        (("pyright",), 1, "scripts/check: broken: types"),
        (("lint-imports", "console"), 1, "scripts/check: broken: import rules, console"),
    ],
)
def test_scripts_check_ends_with_what_is_broken(
    tmp_path: Path, failing: tuple[str, ...], status: int, last: str
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/check", tmp_path / "scripts/check")
    for name in ("scripts/setup", "scripts/console", *(f".venv/bin/{each}" for each in PROGRAMS)):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\nexit {int(file.name in failing)}\n")
        file.chmod(0o755)
    ran = subprocess.run(["scripts/check"], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert ran.returncode == status
    assert (ran.stdout + ran.stderr).splitlines()[-1] == last
