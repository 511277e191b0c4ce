"""The proof that sessions are confined: it holds here, as root and as a user, and notices whatever is taken away."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.features.sandbox.inside.syscalls import ARCHITECTURES, program
from service.features.sandbox.local import FIRST_UIDS
from tests.support import ROOT
from tests.support.sandbox.sandboxes import folder_for_all

SECONDS = 60

NAMESPACE = "import ctypes, os; os.setresuid(65534, 65534, 65534); exit(ctypes.CDLL(None).unshare(0x10020000) != 0)"
USER_NAMESPACES = subprocess.run([sys.executable, "-c", NAMESPACE], check=False, capture_output=True).returncode == 0

CONFINE, CALLS = "service/features/sandbox/inside/confine.py", "service/features/sandbox/inside/syscalls.py"
SOCKET = ("recvfrom 45 207", "recvfrom 45 207; socket 41 198")
IO_URING = ("recvfrom 45 207", "recvfrom 45 207; io_uring_setup 425 425")
TIMER = ("recvfrom 45 207", "recvfrom 45 207; timer_create 222 107")
CHMOD = ("recvfrom 45 207", "recvfrom 45 207; chmod 90 -; fchmodat 268 53")
CLONE_FILES = (
    "_CLONE_FILES, _CLONE_NEW = 0x00010000, 0x00000400,",
    "_CLONE_FILES, _CLONE_NEW = 0x00010000, 0x00010000,",
)
BARE = ("for name in (*USEFUL, *SCIENTIFIC):", "for name in USEFUL:")
"""A variable that spares a sandbox which won't be one the second in which it imports NumPy, pandas and Matplotlib."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "static")
LIMIT = "        resource.RLIMIT_"


@pytest.fixture
def base() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


def tried(base: Path, *arguments: str, code: Path = ROOT) -> dict[str, str]:
    """What a sandbox in a process of its own is, its code below `code`."""
    environment = os.environ | {"PYTHONPATH": f"{code}:{ROOT}"}
    command = [sys.executable, "-m", "tests.support.sandbox.proving", str(base), *arguments]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def changed(path: str, before: str, after: str) -> Generator[Path]:
    """The code of sandboxes with another text in one of its files."""
    with folder_for_all() as folder:
        folder.chmod(0o755)
        shutil.copytree(ROOT / "service", folder / "service", ignore=LEFT_OUT)
        for name, old, new in ((path, before, after), ("service/features/sandbox/inside/zygote.py", *BARE)):
            code = (folder / name).read_text()
            assert old in code
            (folder / name).write_text(code.replace(old, new))
        yield folder


def further(*mutations: tuple[str, str, str, str, str]) -> Any:
    """Mutations of the long form: what they take away is noticed in the same way as what others do."""
    return [pytest.param(*each, marks=pytest.mark.full) for each in mutations]


def allowing(call: str, rule: str) -> tuple[str, str]:
    """The value that allows a call in whatever way, in the place of a rule."""
    return f"(_{call}, {rule})", f"(_{call}, [(_RETURN, 0, 0, _ALLOW)])"


def test_it_holds_for_whoever_runs_the_tests(base: Path) -> None:
    found = tried(base)
    assert (found["ended"], found["files"]) == ("ok", ["/mnt/data/x"])
    users = [first + 2 for first in FIRST_UIDS] if os.getuid() == 0 else [os.getuid()]
    assert int(found["logs"][1:].split(",")[0]) in users


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_it_holds_for_a_user_without_privileges(base: Path) -> None:
    found = tried(base, "as-user")
    assert (found["ended"], found["logs"]) == ("ok", "(65534, '42')\n")
    assert (found["folder"] == "/mnt/data") is USER_NAMESPACES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_without_a_namespace_sessions_are_told_the_path_of_their_folder(base: Path) -> None:
    found = tried(base, "as-user", "without-namespaces")
    assert (found["ended"], found["files"]) == ("ok", ["/mnt/data/x"])
    assert found["folder"].startswith(f"{base}/run-")


@pytest.mark.parametrize(
    ("path", "before", "after", "who", "reasons"),
    [
        (CONFINE, "    _seccomp()\n", "", "root", "a session can: call|the attempts ended early"),
        (CONFINE, "    _landlock(readable, folders)\n", "", "root", "a session can: read a file|ended early"),
        (CONFINE, "        os.setresuid(uid, uid, uid)\n", "", "root", "be root|ended early"),
        (CALLS, *IO_URING, "user", "call io_uring_setup"),
        *further(
            (CONFINE, "    _seccomp()\n", "", "user", "a session can: call|the attempts ended early"),
            (CONFINE, "    _landlock(readable, folders)\n", "", "user", "a session can: read a file|ended early"),
            (CONFINE, f"{LIMIT}NPROC: bounds.threads,\n", "", "root", "more than 64 threads"),
            (CONFINE, f"{LIMIT}AS: begun + bounds.memory_bytes,\n", "", "root", "more memory than|ended early"),
            (CONFINE, f"{LIMIT}FSIZE: bounds.file_bytes,\n", "", "root", "a file that is too large"),
            (CALLS, *SOCKET, "root", "a session can: call socket|didn't report their results"),
            (CALLS, *TIMER, "user", "call timer_create"),
            (CALLS, *CHMOD, "user", "another process or file was changed"),
            (CALLS, *allowing("FCNTL", "_without_locks()"), "user", "signalled by a pipe"),
            (CALLS, *allowing("KILL", "own"), "user", "see it|signal"),
            (CALLS, *allowing("PRLIMIT", "nobody_else"), "user", "read its limits"),
            (CALLS, *allowing("SENDTO", "_to_nobody_by_name()"), "user", "message to a path"),
            (CALLS, *allowing("CLONE", "_threads_alone()"), "user", "fork|clone|ended early"),
            (CALLS, *allowing("OPENAT", "_plain_modes(2)"), "user", "neither reading nor|neither, and"),
            (CALLS, *allowing("RENAMEAT2", "_only(4, *_RENAMES)"), "user", "behind a rename"),
            (CALLS, *allowing("FALLOCATE", "[(_RETURN, 0, 0, _EOPNOTSUPP)]"), "user", "at once"),
            (CALLS, *CLONE_FILES, "user", "files of its own|ended early"),
            (CALLS, "_PRCTLS = (15, 16)", "_PRCTLS = (15, 16, 1)", "root", "a session can: outlive the service"),
            (CALLS, "read 0 63; ", "", "root", ""),
        ),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_whatever_is_taken_from_the_confinement_is_a_reason_to_have_no_sandbox(
    base: Path, path: str, before: str, after: str, who: str, reasons: str
) -> None:
    with changed(path, before, after) as weaker:
        found = tried(base, *(["as-user"] if who == "user" else []), code=weaker)
    assert "unusable" in found
    assert re.search(reasons, found["unusable"]), found


@pytest.mark.skipif(os.geteuid() != 0, reason="a user's sessions share their threads, which aren't counted")
def test_threads_that_end_late_are_no_reason(base: Path) -> None:
    with changed("service/features/sandbox/inside/attempts.py", "        done.set()\n", "") as late:
        assert tried(base, code=late)["ended"] == "ok"


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_filter_is_a_program_that_the_kernel_can_take(machine: str) -> None:
    made = program(machine, 1234)
    assert len(made) % 8 == 0
    assert len(made) // 8 < 4096  # BPF_MAXINSNS
    codes = {int.from_bytes(made[at : at + 2], "little") for at in range(0, len(made), 8)}
    assert codes <= {0x20, 0x54, 0x15, 0x35, 0x45, 0x06}
    assert made[-8:] == (0x06).to_bytes(2, "little") + bytes(2) + (0x00050001).to_bytes(4, "little")
