"""scripts/test installs what the chosen tests need and nothing else: by their imports, and with stand-ins."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.needs import needs

PROXIES = {"nginx": "nginx-light", "haproxy": "haproxy", "caddy": "caddy"}
POSTGRES = {"pg_ctlcluster": "postgresql"}
SMOL = {"smol": "scripts/setup"}

PYTHON = """#!/usr/bin/env bash
# tells what tests need, and notes which of them are run
[[ $2 != tests.support.needs ]] || { echo "$*" >>noted && cat needed && exit; }
echo "$*" >>noted
"""
NOTES_ITSELF = """#!/usr/bin/env bash
echo "$0 $*" >>noted
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/settings", {}),
        ("tests/web/test_auth.py::test_a_name", {}),
        ("tests/engine/llama/test_llama_service.py", {}),
        ("tests/engine/llama/test_smol.py", SMOL),
        ("tests/deploy/test_proxies.py", PROXIES),
        ("tests/store/archive/test_links.py", POSTGRES | {"redis-server": "redis-server"}),  # of the store's conftest
        ("tests/chaos", POSTGRES | SMOL),
    ],
)
def test_tests_need_what_they_and_their_conftests_import(path: str, expected: dict[str, str]) -> None:
    assert needs(path) == expected


def test_whoever_looks_for_a_program_of_debian_says_what_it_needs() -> None:
    looks = re.compile(r"program_path\(|which\(\"(?!kubectl|curl|bash|openssl)")
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name not in ("needs.py", Path(__file__).name) and looks.search(path.read_text()):
            assert "NEEDS" in path.read_text(), path


def run(folder: Path, *arguments: str, needed: str = "") -> list[str]:
    """What scripts/test did, where tests need something."""
    stand_ins = {".venv/bin/python": PYTHON, "scripts/setup": NOTES_ITSELF, "scripts/debian": NOTES_ITSELF}
    for name, text in stand_ins.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    shutil.copy(ROOT / "scripts" / "test", folder / "scripts")
    (folder / "needed").write_text(needed)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_one.py").touch()
    subprocess.run([folder / "scripts" / "test", *arguments], check=True, timeout=30)
    return (folder / "noted").read_text().splitlines()


def test_a_file_that_needs_nothing_has_nothing_installed_but_the_environment(tmp_path: Path) -> None:
    setup, asked, tested = run(tmp_path, "-x", "tests/test_one.py::test_it")
    assert (setup, asked) == ("scripts/setup dev", "-m tests.support.needs tests/test_one.py::test_it")
    assert tested.endswith(" -x tests/test_one.py::test_it")


def test_what_a_kind_needs_can_be_installed_alone(tmp_path: Path) -> None:
    assert run(tmp_path, "--clients", "--setup")[2:] == ["scripts/setup clients", "scripts/setup phoenix"]


def test_what_is_needed_and_not_there_is_installed_first(tmp_path: Path) -> None:
    needed = "no-such-program=its-package\nbash=bash\nsmol=scripts/setup\nchromium=chromium\n"
    done = run(tmp_path, "tests/test_one.py", needed=needed)
    assert done[2:-1] == ["scripts/setup smol", "scripts/debian its-package"]
