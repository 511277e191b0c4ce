"""Confines this process for good: limits, Landlock, a user of its own, no capabilities, a seccomp filter.

Any process of Linux may do all of it to itself, as root or not, in a container or not. A refusal of the kernel is an
error here, never a sandbox that is a little weaker. By ctypes: docs/decisions/0063 says which libraries were looked at.
"""

import ctypes
import os
import platform
import resource
import stat
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.features.sandbox.inside import syscalls

LIBC = ctypes.CDLL(None, use_errno=True)

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_SECCOMP, _CAPSET = {"x86_64": (317, 126), "aarch64": (277, 91)}.get(platform.machine(), (-1, -1))
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 1, 38, 4
_SIGKILL = 9
_CAPABILITY_VERSION = 0x20080522

_EXECUTE, _WRITE, _READ, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG = 1 << 7, 1 << 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL_DEV
_OF_FOLDER = _READ | _WRITE | _READ_DIR | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
"""The rights of a session in its folder. No links, pipes or sockets: a reader of the folder never meets one."""

DEVICES = {
    "/dev/null": _READ | _WRITE,
    "/dev/full": _READ | _WRITE,
    **dict.fromkeys(("/dev/zero", "/dev/random", "/dev/urandom"), _READ),
}

OPEN_FILES = 256
"""Files that a session has open at once."""

PENDING_SIGNALS = 64
NICE = 10
"""How far a session stands behind the service for the processor."""


@dataclass(frozen=True)
class KernelBounds:
    """The kernel's limits for a session: bytes of memory beyond those that it begins with, bytes of one file, seconds
    of processor time, and threads of its user.
    """

    memory_bytes: int
    file_bytes: int
    cpu_seconds: int
    threads: int


def landlock_version() -> int:
    """The version of Landlock that this kernel has; 0 where it has none."""
    return max(LIBC.syscall(_LANDLOCK_CREATE, None, 0, 1), 0)


def confine(readable: Iterable[str], folders: Sequence[str], bounds: KernelBounds, uid: int | None) -> None:
    """Confine this process, which has one thread, and is the session's own: it reads `readable`, and works in
    `folders`. `uid` is the user to become, which only root can. Raises OSError where any of it is refused.
    """
    _limit(bounds)
    check("no_new_privs", LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _landlock(readable, folders)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _drop_capabilities()
    die_with_parent()  # after the user changed, which takes it back
    _seccomp()


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it ends, and let its own user look at it."""
    check("dumpable", LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))
    check("pdeathsig", LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))


def _limit(bounds: KernelBounds) -> None:
    with open("/proc/self/statm") as statm:
        begun = int(statm.read().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: begun + bounds.memory_bytes,
        resource.RLIMIT_FSIZE: bounds.file_bytes,
        resource.RLIMIT_CPU: bounds.cpu_seconds,
        resource.RLIMIT_NPROC: bounds.threads,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_SIGPENDING: PENDING_SIGNALS,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for which, most in limits.items():
        hard = resource.getrlimit(which)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))
    os.nice(NICE)


def _landlock(readable: Iterable[str], folders: Iterable[str]) -> None:
    version = landlock_version()
    if not version:
        raise OSError("this kernel has no Landlock, which needs Linux 5.13 or later, with landlock in its list of LSMs")
    rights = _FIRST_RIGHTS | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rights |= _IOCTL_DEV if version >= 5 else 0
    # files; TCP from version 4 on; abstract sockets and signals from version 6 on
    handled = struct.pack("<QQQ", rights, 3, 3)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _call("landlock_create_ruleset", _LANDLOCK_CREATE, handled, len(handled), 0)
    allowed = dict.fromkeys(readable, _READ | _READ_DIR) | dict.fromkeys(folders, _OF_FOLDER) | DEVICES
    for path, wanted in allowed.items():
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            wanted &= _OF_FILES
        rule = struct.pack("<Qi", wanted & rights, place)
        _call("landlock_add_rule", _LANDLOCK_ADD, ruleset, 1, rule, 0)
        os.close(place)
    _call("landlock_restrict_self", _LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _drop_capabilities() -> None:
    """Of root, and of a user who is root in a namespace of its own."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    _call("capset", _CAPSET, header, bytes(24))


def _seccomp() -> None:
    machine = platform.machine()
    if machine not in syscalls.ARCHITECTURES:
        raise OSError(f"there is no filter for {machine}: it is for {' and '.join(syscalls.ARCHITECTURES)}")
    made = syscalls.program(machine, os.getpid())
    code = ctypes.create_string_buffer(made, len(made))
    described = struct.pack("<HxxxxxxQ", len(made) // 8, ctypes.addressof(code))
    _call("seccomp", _SECCOMP, 1, 0, described)


def _call(name: str, number: int, *arguments: object) -> int:
    return check(name, LIBC.syscall(number, *arguments))


def check(name: str, result: int) -> int:
    """The result of a call of the kernel. Raises OSError where it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
