"""Well-known ways out of sandboxes for Python: each gets to modules and functions, and none to anything outside.

Restricted interpreters fall to these; here nothing of Python is restricted, and the kernel decides. Each tries to write
`OUTSIDE`, which everybody may write, to run a program, or to reach another process.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from service.features.sandbox.local import FIRST_UIDS, RANGE, LocalSandbox
from tests.support.sandbox.sandboxes import MOST, TENANT, folder_for_all, local
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEPT = b"kept"

CALLED = (
    "f = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nassert f() >= 0, 'refused'"
)
ESCAPES = {
    "a subclass of object that imports": (
        "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
        ".__init__.__globals__['system']('echo x > OUTSIDE')"
    ),
    "the builtins of a frame": (
        "import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\nf.f_builtins['open']('OUTSIDE', 'w').write('x')"
    ),
    "a pickle": "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'echo x > OUTSIDE'\\ntR.\")",
    "a library by ctypes": "import ctypes\nassert ctypes.CDLL(None).system(b'echo x > OUTSIDE') == 0, 'refused'",
    "the kernel by ctypes": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nfd = libc.open(b'OUTSIDE', 1)\n"
        "assert fd >= 0, os.strerror(ctypes.get_errno())\nlibc.write(fd, b'x', 1)"
    ),
    "machine code": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
        # mov eax, 57 (fork); syscall; ret
        "m.write(b'\\xb8\\x39\\0\\0\\0\\x0f\\x05\\xc3')\n"
        f"{CALLED}"
    ),
    "a call of 32 bits": (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\n"
        # push rbx; mov eax, 2 (fork of i386); int 0x80; pop rbx; ret
        "m.write(b'\\x53\\xb8\\x02\\0\\0\\0\\xcd\\x80\\x5b\\xc3')\n"
        f"{CALLED}"
    ),
    "a call of x32": (
        "import ctypes\nassert ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 57)) >= 0, 'refused'"
    ),
    "its own memory as a file": "open('/proc/self/mem', 'r+b')",
    "a link in its folder": "import os\nos.symlink('OUTSIDE', 'x')",
    "a folder of another by its number": "import os\nos.listdir(f'/proc/{os.getppid()}/cwd/')",
    "the file of the root": "import os\nos.open('/proc/1/root/OUTSIDE', os.O_WRONLY)",
    "a folder that was open": "import os\n[os.open('../../..', os.O_RDONLY, dir_fd=n) for n in (100,)]",
    "a message with a file": (
        "import socket, array\nsocket.socket(fileno=3).sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, "
        "array.array('i', [100]))])"
    ),
    "another program in its place": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo x > OUTSIDE'])",
    "a fork server": "import multiprocessing\nmultiprocessing.get_context('forkserver').Process(target=print).start()",
    "a debugger that waits": "breakpoint()",
    "the service's code": "import service.settings",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[LocalSandbox]:
    with folder_for_all() as base:
        made = local(base)
        await made.start()
        await made.open("neighbour", "bob", MOST)
        yield made
        await made.aclose()


@pytest.fixture
def outside() -> Iterator[Path]:
    with folder_for_all() as folder:
        folder.chmod(0o777)
        path = folder / "outside"
        path.write_bytes(KEPT)
        path.chmod(0o666)
        yield path


@pytest.mark.parametrize("name", ESCAPES)
async def test_no_known_escape_reaches_anything(sandbox: LocalSandbox, outside: Path, name: str) -> None:
    await sandbox.open("eve", TENANT, MOST)
    await sandbox.run("neighbour", f"before {name}", "kept = 'mine'")
    before = processes()
    cell = await sandbox.run("eve", name, ESCAPES[name].replace("OUTSIDE", str(outside)))
    assert cell.ended in ("raised", "lost") or name.startswith(("a subclass", "a pickle")), cell
    assert await asyncio.to_thread(outside.read_bytes) == KEPT
    await until(lambda: processes() <= before)  # what another test's sandbox leaves behind is soon gone
    assert (await sandbox.run("neighbour", f"after {name}", "kept")).logs == "'mine'\n"
    await sandbox.close("eve")


def processes() -> set[str]:
    """Processes of this sandbox's sessions, and those whose parent is gone: by their user, which only root can tell.

    Other tests may have sandboxes at the same time.
    """
    users: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            users[int(entry.name)] = entry.stat().st_uid
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])

    def ours(process: int) -> bool:
        while process in parents and process not in (1, os.getpid()):
            process = parents[process]
        return process == os.getpid()

    last = FIRST_UIDS[-1] + RANGE
    of_sessions = {each for each, user in users.items() if FIRST_UIDS[0] <= user < last and os.getuid() == 0}
    return {str(each) for each in of_sessions if ours(each) or parents.get(each) == 1}
