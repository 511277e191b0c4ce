"""A real vLLM server in processes of its own, as scripts/vllm-cpu starts it, to be killed and started again.

It is told everything by arguments and its environment, and speaks through HTTP, its metrics and its log. Never import
vLLM here: it lives in another environment.
"""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import httpx

from tests.support import ROOT
from tests.support.ports import free_port
from tests.support.waiting import wait_until

COMMAND = ROOT / "scripts" / "vllm-cpu"
MODEL = "talker"
SMOL = "smollm2"
SEEING = "seeing"
CONTEXT_TOKENS = 4096

START_SECONDS = 400.0
"""It takes half a minute on two quiet cores, SmolLM2 a minute."""

STOP_SECONDS = 15.0
LOG_TAIL_CHARS = 5000

BOUND_TO_US = ("setpriv", "--pdeathsig", "TERM")
"""Lets the kernel stop the server, which has 4 GB, when the tests are killed."""

CORE = b"VLLM::EngineCore"
"""What the process that computes calls itself; its parent is the one that speaks HTTP."""


class VllmProcess:
    """One server, which keeps its port and its log while it is killed and started again. Nothing happens at first."""

    def __init__(self, folder: Path, model: str = MODEL) -> None:
        """Of the talker, of SMOL, or of SEEING. `folder` gets the log."""
        named = {SMOL: ("--model", "smol"), SEEING: ("--model", SEEING)}
        self._command = [COMMAND, *named.get(model, ())]
        self._log = folder / "vllm.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.arguments: tuple[str, ...] | None = None
        """What it was started with, or None if it should not be running."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_tail(self) -> str:
        """The end of what it logged."""
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self._log.exists() else ""

    def start(self, *arguments: str) -> None:
        """Start it with more of vLLM's arguments, and wait until it is healthy."""
        self.launch(*arguments)
        self.wait_until_healthy()

    def launch(self, *arguments: str) -> None:
        """Start it and don't wait. Only in the main thread: the kernel ends it with the thread that started it."""
        assert self.arguments is None, "it runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*BOUND_TO_US, *self._command, "--port", str(self.port), *arguments],
                env={**os.environ, "VLLM_ENABLE_RESPONSES_API_STORE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self.arguments = arguments

    def wait_until_healthy(self) -> None:
        """Wait until it serves. Raises TimeoutError, and AssertionError if it has ended instead."""
        wait_until(self._healthy, START_SECONDS)

    def stop(self) -> None:
        """End it, gently if that works, whatever state it is in."""
        if self.arguments is None:
            return
        self._running.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End all its processes as a power cut would."""
        self._kill_group()
        self.wait()

    def kill_core(self) -> None:
        """End the process that computes, and let the one that speaks HTTP find out."""
        os.kill(self._core(), signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it has ended, and leave nothing of it behind."""
        self._running.wait(STOP_SECONDS)
        self._kill_group()
        self.arguments = self._process = None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):  # where all of them are gone
            os.killpg(self._running.pid, signal.SIGKILL)

    def _core(self) -> int:
        threads = Path(f"/proc/{self._running.pid}/task").glob("*/children")
        for child in (int(pid) for thread in threads for pid in thread.read_text().split()):
            if Path(f"/proc/{child}/cmdline").read_bytes().startswith(CORE):
                return child
        raise AssertionError("the server has no engine core")

    def _healthy(self) -> bool:
        assert self._running.poll() is None, self.log_tail
        try:
            return httpx.get(f"{self.url}/health", trust_env=False, timeout=START_SECONDS).status_code == 200
        except httpx.ConnectError:
            return False


def metric(exposed: str, name: str) -> float:
    """The sum of a metric's series in the text that `/metrics` exposes."""
    values = re.findall(rf"^{re.escape(name)}\{{.*\}} (\S+)$", exposed, re.MULTILINE)
    assert values, f"no metric {name}"
    return sum(map(float, values))


def block_tokens(exposed: str) -> int:
    """How many tokens a block of the prefix cache has."""
    (size,) = set(re.findall(r'^vllm:cache_config_info\{.*[{,]block_size="(\d+)"', exposed, re.MULTILINE))
    return int(size)
