"""scripts/setup in a copy of the checkout, with stand-ins for Python and uv: who installs, and what is shown."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.waiting import wait_until

SECONDS = 30
PACKAGES = 48

PYTHON = f"""#!/usr/bin/env bash
# what scripts/setup asks of a Python; an installation tells of {PACKAGES} packages
case "$*" in
*"-m venv"*)
    folder="${{@: -1}}"
    mkdir -p "$folder/bin"
    cp "$0" "$folder/bin/python"
    echo "command = $0 -m venv $PWD/$folder" >"$folder/pyvenv.cfg"
    ;;
*"install"*"-r "*)
    echo pip >>installed
    for ((number = 0; number < {PACKAGES}; number++)); do echo "Collecting package$number==1.0 (from x)"; done
    echo "Installing collected packages: all"
    ;;
*"install"*)
    printf '#!/bin/sh\\necho "$@"\\n' >.venv/bin/harmonium
    chmod +x .venv/bin/harmonium
    ;;
esac
"""
UV = """#!/usr/bin/env bash
echo uv >>installed
exit $(cat uv-status)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What scripts/setup needs of a checkout."""
    folder = tmp_path / "checkout"
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "uv-status").write_text("0")
    return folder


def environment(checkout: Path, *, uv: bool) -> dict[str, str]:
    """Where the stand-ins are found, and uv only if it is to be."""
    programs = checkout.parent / "programs"
    programs.mkdir()
    for name, text in (("python3", PYTHON), *((("uv", UV),) if uv else ())):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(checkout)}


def run(checkout: Path, *, uv: bool) -> str:
    """What `scripts/harmonium doctor` shows where there is no terminal."""
    command = [checkout / "scripts/harmonium", "doctor"]
    env = environment(checkout, uv=uv)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "doctor\n"
    return done.stderr


def installers(checkout: Path) -> list[str]:
    """Who was asked to install, in order."""
    return (checkout / "installed").read_text().split()


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(checkout: Path) -> None:
    lines = run(checkout, uv=False).splitlines()
    assert [line.removeprefix("scripts/setup: ") for line in lines[1:]] == [
        "pip installs requirements/serve.txt into .venv",
        "15 of 48 packages: package14==1.0",
        "30 of 48 packages: package29==1.0",
        "45 of 48 packages: package44==1.0",
        "48 of 48 packages: unpacking all",
    ]


def test_uv_installs_where_it_is_there(checkout: Path) -> None:
    assert "uv installs requirements/serve.txt" in run(checkout, uv=True)
    assert installers(checkout) == ["uv"]


def test_pip_installs_where_uv_can_not(checkout: Path) -> None:
    (checkout / "uv-status").write_text("2")
    assert "pip installs requirements/serve.txt" in run(checkout, uv=True)
    assert installers(checkout) == ["uv", "pip"]


def test_a_terminal_has_one_line_that_moves_and_is_gone_at_the_end(checkout: Path) -> None:
    master, slave = os.openpty()
    env = environment(checkout, uv=False)
    process = subprocess.Popen([checkout / "scripts/setup", "serve"], env=env, stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""

    def over() -> bool:
        nonlocal shown
        try:
            shown += os.read(master, 65536)
        except OSError:  # nobody has the other side open any more
            return True
        return False

    wait_until(over, SECONDS)
    os.close(master)
    assert process.wait(SECONDS) == 0
    moving = re.findall(r"\r\x1b\[K(scripts/setup: \d+ of 48 packages, \d+ s: [^\r]*)", shown.decode())
    assert moving[0].startswith("scripts/setup: 1 of 48 packages, ")
    assert moving[-1].endswith(": unpacking all")
    assert shown.endswith(b"\r\x1b[K")
    assert max(map(len, moving)) < 80
