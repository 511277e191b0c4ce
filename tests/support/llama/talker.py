"""The talker for llama.cpp, which is built once, and servers of it."""

import fcntl
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.features.llama.child import Began, WantedServer
from tests.support import ROOT

FILE = ROOT / ".venv" / "talker.gguf"
BUILD = ROOT / "scripts" / "talker" / "for_llama.py"
CONTEXT_TOKENS = 4096
KEY = "sk-llama"

OPTIONS = {"cpuparams.n_threads": 1, "verbosity": 0}
"""Threads that wait for each other spin: on a busy machine two are slower than one."""


@cache
def built() -> Path:
    """The talker's file. Skips the test where there is no llama.cpp."""
    pytest.importorskip("xllamacpp", reason="xllamacpp is installed on Linux on x86_64 alone")
    with BUILD.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, BUILD, FILE], check=True)
    return FILE


class LlamaProcess:
    """A llama.cpp server in a process of its own, until `kill`."""

    def __init__(
        self, *, slots: int = 4, port: int = 0, alias: str = "talker", file: Path | None = None, **options: Any
    ) -> None:
        """Of the talker, or of the model in a file, as `alias`."""
        wanted = WantedServer(str(file or built()), alias, KEY, port, slots, CONTEXT_TOKENS, {**OPTIONS, **options})
        command = [sys.executable, "-m", "service.features.llama.child"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(wanted) + b"\n")
        self.process.stdin.flush()
        began = msgspec.json.decode(self.process.stdout.readline(), type=Began)
        assert began.url, began.failed
        self.url = began.url

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.communicate()
