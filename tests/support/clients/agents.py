"""Agents at a command line, as anybody runs them unattended: each has a home and a folder of its own, is told where the
service is, and is asked for one turn after the other of one session.
"""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.clients.clients import PACKAGES, environment, node
from tests.support.documents import block
from tests.support.service.process import MODEL

ADDRESS = "http://localhost:8000"
SECONDS = 120
"""How long a turn may take: several start at once on two cores."""

PROGRAMS = PACKAGES / ".bin"


@dataclass(frozen=True)
class Kind:
    """One program: how a turn is asked for, and which of its tools runs a command."""

    command: Callable[[str, bool], Sequence[str | Path]]
    """The command line for a text; whether it goes on with the session."""
    tool: str
    command_in: str = "command"
    """The argument of the tool that is the command."""
    more: dict[str, str] = field(default_factory=dict[str, str])
    """The rest of the arguments of its tool."""
    environment: Callable[[str], dict[str, str]] = lambda _: {}
    """Its variables, for the address of a service."""
    prepare: Callable[[Path, str], None] = lambda *_: None
    """Writes its settings into a home."""


class Agent:
    """A program in a home of its own."""

    def __init__(self, kind: Kind, url: str, home: Path) -> None:
        self._kind, self._home = kind, home
        self._turns = 0
        self.work = home / "work"
        self.work.mkdir(parents=True)
        self._environment = environment(url, home) | kind.environment(url)
        kind.prepare(home, url)

    def wish(self, command: str) -> str:
        """The words that have an obedient model run a command."""
        return f"Use {self._kind.tool}: {json.dumps({self._kind.command_in: command, **self._kind.more})}"

    def start(self, asked: str) -> subprocess.Popen[str]:
        """The program, at work on the next turn."""
        command = self._kind.command(asked, self._turns > 0)
        self._turns += 1
        return subprocess.Popen(
            command,
            cwd=self.work,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def turn(self, asked: str) -> str:
        """The text that it prints for a turn."""
        process = self.start(asked)
        try:
            said, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        assert process.returncode == 0, f"{said}\n{errors}"
        return said


def _codex(asked: str, again: bool) -> list[str | Path]:
    how = ["--skip-git-repo-check", "--json", "--sandbox", "danger-full-access"]
    return [PROGRAMS / "codex", "exec", *how, *(["resume", "--last"] if again else []), asked]


def codex_settings(home: Path, url: str, model: str = MODEL, more: str = "") -> None:
    """What docs/clients.md says of Codex, for this service."""
    (home / ".codex").mkdir()
    text = block("docs/clients.md", "toml").replace(ADDRESS, url).replace(MODEL, model)
    (home / ".codex" / "config.toml").write_text(text + more)


def _anthropic(asked: str, again: bool) -> list[str | Path]:
    # npm installs the program beside its wrapper, and runs no script of its package here
    wrapper = PACKAGES / "@anthropic-ai/claude-code" / "cli-wrapper.cjs"
    return [node(), wrapper, "-p", asked, "--allowedTools", "Bash", *(["--continue"] if again else [])]


def _pi(asked: str, again: bool) -> list[str | Path]:
    how = ["--offline", "--provider", "harmonium", "--model", MODEL, "-p"]
    return [PROGRAMS / "pi", *how, *(["-c"] if again else []), asked]


def _pi_settings(home: Path, url: str) -> None:
    model = {"id": MODEL, "reasoning": True, "contextWindow": 131_072}
    provider = {"baseUrl": f"{url}/v1", "api": "openai-responses", "apiKey": "none", "models": [model]}
    (home / ".pi" / "agent").mkdir(parents=True)
    (home / ".pi" / "agent" / "models.json").write_text(json.dumps({"providers": {"harmonium": provider}}))


def _github(asked: str, again: bool) -> list[str | Path]:
    return [PROGRAMS / GITHUB.lower(), *(["--continue"] if again else []), "--allow-all-tools", "-p", asked]


def _github_variables(url: str) -> dict[str, str]:
    told = {"PROVIDER_BASE_URL": f"{url}/v1", "PROVIDER_WIRE_API": "responses", "MODEL": MODEL, "OFFLINE": "true"}
    return {f"{GITHUB}_{name}": value for name, value in told.items()}


def _qwen(asked: str, again: bool) -> list[str | Path]:
    how = ["--auth-type", "openai", "--model", MODEL, "--yolo"]
    return [PROGRAMS / "qwen", *how, *(["--continue"] if again else []), "-p", asked]


GITHUB = "COPI" + "LOT"
"""The beginning of the variables of GitHub's command line."""

KINDS = {
    "codex": Kind(_codex, "functions.exec_command", "cmd", prepare=codex_settings),
    "anthropic": Kind(
        _anthropic,
        "functions.Bash",
        more={"description": "As asked"},
        environment=lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": MODEL},
    ),
    "pi": Kind(_pi, "functions.bash", prepare=_pi_settings),
    "github": Kind(_github, "functions.bash", more={"description": "As asked"}, environment=_github_variables),
    "qwen": Kind(_qwen, "functions.run_shell_command", more={"description": "As asked"}),
}
