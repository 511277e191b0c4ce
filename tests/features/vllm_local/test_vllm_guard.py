"""The guard of vLLM's core, with processes that sleep for cores."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.features.vllm_local.guard import EngineGuard

OWNER = """
import subprocess, sys
from service.features.vllm_local.guard import EngineGuard

guard = EngineGuard(patience_seconds=0.2)
cores = [subprocess.Popen(["bash", "-c", command]) for command in sys.argv[1:]]
guard.watch(core.pid for core in cores)
print(*(core.pid for core in cores), flush=True)
sys.stdin.read()
"""
"""Starts a core for each argument, has them guarded, names them, and waits."""

SLEEP = "exec sleep 100"
DEAF_TO_INTERRUPTS = f"trap '' INT; {SLEEP}"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
END_SECONDS = 10.0

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a guard needs Linux")


def owner(*cores: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process group with these cores, and handles of those that are alive."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, *cores],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where it says that it was interrupted
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pids = process.stdout.readline().split()
    return process, [os.pidfd_open(int(pid)) for pid in pids if Path(f"/proc/{pid}").exists()]


def ended(core: int, seconds: float = END_SECONDS) -> bool:
    """Whether it ends in this time."""
    return bool(select.select([core], [], [], seconds)[0])


def test_cores_end_when_their_owner_is_killed() -> None:
    process, handles = owner(STUBBORN, SLEEP)
    process.kill()
    process.communicate()
    assert len(handles) == 2
    assert all(map(ended, handles))


def test_an_interrupt_from_the_terminal_ends_the_owner_and_leaves_the_guard_to_do_its_work() -> None:
    process, (core,) = owner(DEAF_TO_INTERRUPTS)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert ended(core)


def test_a_guard_that_was_dismissed_ends_nothing() -> None:
    core = subprocess.Popen(["sleep", "100"])
    guard = EngineGuard(patience_seconds=0)
    guard.watch([core.pid])
    guard.dismiss()
    assert core.poll() is None
    core.kill()
    core.wait()
