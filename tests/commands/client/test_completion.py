"""`harmonium completion`: what a real bash makes of the script, and what the other shells' scripts ask."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

BASH = shutil.which("bash")
ASK = """
eval "$(harmonium completion bash)"
complete -p harmonium
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_harmonium_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")
def test_bash_completes_commands(tmp_path: Path) -> None:
    assert BASH is not None
    command = tmp_path / "harmonium"
    command.write_text(f"#!{sys.executable}\nfrom service.__main__ import main\n\nmain()\n")
    command.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"]}
    asking = [BASH, "--norc", "-c", ASK, "bash", "harmonium", "d"]
    result = subprocess.run(asking, capture_output=True, text=True, env=environment, check=True, timeout=60)
    registered, *found = result.stdout.splitlines()
    assert registered == "complete -o default -F _harmonium_completion harmonium"
    assert ({each for each in found if each}, result.stderr) == ({"diff", "doctor"}, "")
