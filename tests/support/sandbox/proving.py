"""Starts a sandbox in a process of its own, and prints what came of it as JSON: `python -m … FOLDER [how it is]`.

As a user: root becomes nobody first, in a mount namespace where nobody can read this Python, too. Without namespaces:
the kernel refuses to make any.
It imports nothing of the other tests' support, which takes two.
"""

import asyncio
import ctypes
import json
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

from service.features.sandbox.inside import mounts
from service.features.sandbox.inside.zygote import python_folders
from service.features.sandbox.local import LocalSandbox, SessionPlaces
from service.features.sandbox.port import SessionLimits, Unusable
from tests.support import ROOT

NOBODY = 65_534
LIMITS = SessionLimits(memory_bytes=256 << 20, disk_bytes=4 << 20, seconds=20)
CODE = "import os\nopen('x', 'w').write(str(6 * 7))\nos.getuid(), open('x').read()"


def become_nobody(base: Path) -> None:
    """Give up being root."""
    os.chown(base, NOBODY, NOBODY)
    needed = [*python_folders(), str(Path(sys.base_prefix, "bin")), str(ROOT)]
    if mounts.view(needed):
        subprocess.run(["umount", mounts.LINK.parent], check=True)  # /mnt/data is the sandbox's own to make
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def refuse_namespaces() -> None:
    """Have the kernel refuse `unshare`, as Docker's filter does."""
    number, seccomp = {"x86_64": (272, 317), "aarch64": (97, 277)}[platform.machine()]
    steps = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in steps))
    described = struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.syscall(seccomp, 1, 0, described) == 0


async def tried(base: Path) -> dict[str, object]:
    """What a session says, or why there is none."""
    sandbox = LocalSandbox(SessionPlaces(sessions=4), LIMITS, base)
    try:
        await sandbox.start()
        folder = (await sandbox.open("one", "ada", LIMITS)).folder
        cell = await sandbox.run("one", "call", CODE)
        return {"folder": folder, "ended": cell.ended, "logs": cell.logs, "files": cell.files}
    except Unusable as error:
        return {"unusable": str(error)}
    finally:
        await sandbox.aclose()


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if "as-user" in sys.argv[2:]:
        become_nobody(place)
    if "without-namespaces" in sys.argv[2:]:
        refuse_namespaces()
    print(json.dumps(asyncio.run(tried(place))))
