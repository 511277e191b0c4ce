"""`harmonium completion`: what a real bash makes of the script, and what the other shells' scripts ask."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.commands.client.options import VARIABLE
from service.commands.command_line import app
from tests.support import ROOT

BASH = shutil.which("bash")
ASK = """
eval "$(harmonium completion bash)"
complete -p harmonium
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_harmonium_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `harmonium` is this one."""
    command = tmp_path / "harmonium"
    command.write_text(f"#!{sys.executable}\nfrom service.__main__ import main\n\nmain()\n")
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.mark.skipif(BASH is None, reason="there is no bash on this machine")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("harmonium", "d"), {"diff", "doctor"}),
        (("harmonium", "projects", "arch"), {"archive"}),
        (("harmonium", "ask", "--eff"), {"--effort"}),
    ],
)
def test_bash_completes_commands_and_options(path: str, words: tuple[str, ...], wanted: set[str]) -> None:
    assert BASH is not None
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": os.environ["HOME"]}
    command = [BASH, "--norc", "-c", ASK, "bash", *words]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60)
    registered, *found = result.stdout.splitlines()
    assert registered == "complete -o default -F _harmonium_completion harmonium"
    assert ({each for each in found if each}, result.stderr) == (wanted, "")


@pytest.mark.parametrize(("shell", "begin"), [("zsh", "#compdef harmonium"), ("fish", "complete --command harmonium")])
def test_other_shells_have_scripts_that_ask_by_the_same_variable(shell: str, begin: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert result.stdout.lstrip().startswith(begin)
    assert f"{VARIABLE}=complete_{shell}" in result.stdout


@pytest.mark.parametrize("shell", ["powershell", "", "bash zsh", "; rm"])
def test_a_shell_without_a_script_is_wrong_usage(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert (result.exit_code, result.stdout) == (2, "")
