"""scripts/setup in a copy of the checkout, with stand-ins for Python and apt-get: who installs, and who is asked."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

SECONDS = 30

PYTHON = """#!/usr/bin/env bash
# what scripts/setup asks of a Python
case "$*" in
*"venv"*--clear*)
    folder="${@: -1}"
    mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python"
    echo "command = $0 -m venv $PWD/$folder" >"$folder/pyvenv.cfg"
    ;;
*ensurepip*) [[ ! -e no-ensurepip ]] ;;
*"install"*"-r "*)
    echo pip >>installed
    ;;
*"install"*)
    printf '#!/bin/sh\\necho "$@"\\n' >.venv/bin/harmonium
    chmod +x .venv/bin/harmonium
    ;;
esac
"""
APT_GET = """#!/usr/bin/env bash
echo "apt-get $*" >>installed
rm -f no-ensurepip
"""
ROOT_USER = """#!/usr/bin/env bash
echo 0
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    """What scripts/setup needs of a checkout, where every user can read it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "checkout"
        for each in ("scripts", "requirements"):
            shutil.copytree(ROOT / each, folder / each)
        shutil.copy(ROOT / "pyproject.toml", folder)
        yield folder


def environment(checkout: Path) -> dict[str, str]:
    """Where the stand-ins are found."""
    programs = checkout.parent / "programs"
    programs.mkdir()
    stand_ins = {"python3": PYTHON, "apt-get": APT_GET, "id": ROOT_USER}
    for name, text in stand_ins.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(checkout)}


def test_an_environment_of_another_checkout_is_never_emptied_through_a_link(checkout: Path) -> None:
    other = checkout.parent / "other"
    other.mkdir()
    (other / "kept").touch()
    (checkout / ".venv").symlink_to(other)
    command = [checkout / "scripts/setup", "serve"]
    done = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode != 0
    assert ".venv is a link" in done.stderr
    assert [each.name for each in other.iterdir()] == ["kept"]


INSTALLED = ["apt-get update -qq", "apt-get install -y -qq --no-install-recommends python3-venv"]
COMMAND = "apt-get update && apt-get install python3-venv"


def lines(checkout: Path) -> list[str]:
    return (checkout / "installed").read_text().splitlines() if (checkout / "installed").exists() else []


def test_where_nobody_can_be_asked_serving_installs_nothing_and_the_tests_what_they_need(checkout: Path) -> None:
    (checkout / "no-ensurepip").touch()
    env = environment(checkout)
    setup = checkout / "scripts/setup"
    done = subprocess.run([setup, "serve"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, lines(checkout)) == (1, [])
    assert done.stderr.endswith(f"can't make virtual environments; on Debian: {COMMAND}\n")
    subprocess.run([setup, "dev"], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert lines(checkout) == [*INSTALLED, "pip"]


def test_a_setting_of_a_linter_installs_nothing_again(checkout: Path) -> None:
    variables, settings = environment(checkout), checkout / "pyproject.toml"
    for old, new in (
        ("", ""),
        ("[tool.ruff]\n", "[tool.ruff]\npreview = true\n"),
        ("[project]\n", "[project]\n# new\n"),
    ):
        settings.write_text(settings.read_text().replace(old, new, 1))
        subprocess.run([checkout / "scripts/setup", "serve"], env=variables, check=True, timeout=SECONDS)
    assert (checkout / "installed").read_text().split() == ["pip", "pip"]
