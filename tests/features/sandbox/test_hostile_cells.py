"""What the author of a hostile cell tries on whoever reads its answers, counts its files and runs its next cell."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from service.features.sandbox.local import LocalSandbox
from service.features.sandbox.port import Full, SessionGone
from tests.features.sandbox.test_sandbox import ran
from tests.features.sandbox.test_sandbox import session as session
from tests.support.sandbox.sandboxes import MOST, folder_for_all, local, parts
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOST = "The session is lost, with its variables and files: "
SAY = "import os, struct, time\ndef say(b): os.write(3, struct.pack('>I', len(b)) + b)\n"
"""A frame of the cell's own making."""

HIDDEN = """
import ctypes, os, tempfile
libc = ctypes.CDLL(None, use_errno=True)
def hide():
    file = os.open('hidden', os.O_CREAT | os.O_RDWR)
    os.write(file, b'x' * (3 << 20))
    os.unlink('hidden')
    return file
"""
MAPPED = "libc.mmap.restype = ctypes.c_void_p\nlibc.mmap.argtypes = [ctypes.c_void_p] + [ctypes.c_long] * 5\n"
LEADERLESS = """
import threading
def go():
    kept = [hide() for _ in range(4)]
    say(b'{"raised":false,"logs":""}')
    time.sleep(100)
threading.Thread(target=go).start()
libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[LocalSandbox]:
    with folder_for_all() as base:
        made = local(base)
        await made.start()
        yield made
        await made.aclose()


async def test_an_interrupt_that_comes_before_its_cell_has_begun_is_not_lost(
    sandbox: LocalSandbox, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "service.features.sandbox.session.GRACE_SECONDS", 20.0
    )  # a busy machine may take long for any interrupt
    await ran(sandbox, "import threading\nthreading.Thread(target=threading.Event().wait).start()")
    for n in range(20):
        running = asyncio.create_task(sandbox.run("one", f"early-{n}", "while True: pass"))
        await until(lambda: sandbox.session("one").busy)
        await sandbox.stop("one", f"early-{n}")
        assert (await running).ended == "stopped"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (f"{SAY}say(b'{{\"x\":' + b'[' * 20_000 + b'}}'); time.sleep(9)", "it sent an invalid message"),
        (
            f'{SAY}say(b\'{{"raised":false,"logs":"","images":[9,9,9,9,9]}}\')\ntime.sleep(9)',
            "it sent an invalid message",
        ),
        (
            f'{SAY}say(b\'{{"raised":false,"logs":"","images":[9999999]}}\')\ntime.sleep(9)',
            "it sent an invalid message",
        ),
        (f'{SAY}say(b\'{{"raised":false,"logs":"","images":[4]}}<svg\')\ntime.sleep(9)', "it sent an invalid message"),
        (f"{SAY}say(b'x' * (1 << 20))", "it sent an invalid message"),
        (f"{SAY}say(b'{{}}'); time.sleep(9)", "it sent an invalid message"),
        ("import os; os.write(3, b'\\xff' * 100)", "it sent an invalid message"),
        ("import os; os.kill(os.getpid(), 40)", "it got signal 40"),
        ("import os, time\nos.close(3)\nwhile True: time.sleep(1)", "it closed its channel"),
    ],
)
async def test_what_a_session_says_or_leaves_unsaid_ends_that_session_alone(
    sandbox: LocalSandbox, session: str, code: str, why: str
) -> None:
    cell = await ran(sandbox, code)
    assert cell.ended == "lost"
    assert cell.logs.startswith(LOST + why)
    with pytest.raises(SessionGone):
        await ran(sandbox, "1")


async def test_a_session_that_answers_unread_cells_doesn_t_fill_the_service_s_memory(
    sandbox: LocalSandbox, session: str
) -> None:
    await ran(sandbox, f'{SAY}for _ in range(9): say(b\'{{"raised":false,"logs":""}}\')\ntime.sleep(99)')
    code = "#" * 900_000
    cells = [await ran(sandbox, f"{code}{n}") for n in range(2)]
    assert [cell.ended for cell in cells] == ["ok", "lost"]
    assert cells[1].logs == f"{LOST}it answered for a cell without having read it.\n"


async def test_no_thread_of_a_session_runs_on_when_its_cell_has_ended(sandbox: LocalSandbox, session: str) -> None:
    counting = (
        "import threading\nn = 0\ndef count():\n  global n\n  while True: n += 1\nkept = threading.Thread(target=count)"
    )
    await ran(sandbox, f"{counting}\nkept.start()")
    pid = sandbox.session("one").pid
    before = _processor_time(pid)
    deadline = asyncio.get_running_loop().time() + 0.3
    await until(lambda: _is_later(deadline))
    assert _processor_time(pid) == before
    assert (await ran(sandbox, "before = n\nwhile n == before: pass\nkept.is_alive()")).logs == "True\n", "it goes on"


async def _is_later(deadline: float) -> bool:
    return asyncio.get_running_loop().time() > deadline


def _processor_time(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]


@pytest.mark.parametrize(
    "code",
    [
        "kept = [hide() for _ in range(4)]",
        f"{MAPPED}for _ in range(4):\n  file = hide(); libc.mmap(None, 4096, 1, 1, file, 0); os.close(file)",
        LEADERLESS,
    ],
    ids=["open", "mapped", "without its first thread"],
)
async def test_files_without_a_name_count_however_they_are_kept(sandbox: LocalSandbox, session: str, code: str) -> None:
    cell = await ran(sandbox, f"{SAY}{HIDDEN}{code}")
    assert cell.ended == "lost"
    assert cell.logs.startswith(f"{LOST}its files took")


async def test_what_is_written_from_outside_never_ends_the_session(sandbox: LocalSandbox, session: str) -> None:
    with pytest.raises(Full):
        await sandbox.write("one", "a/b/c/d", parts(b"x" * MOST.disk_bytes))
    await ran(sandbox, "for n in range(45): open(str(n), 'w').close()")
    with pytest.raises(Full):
        await sandbox.write("one", "1/2/3/4/5/6/7", parts(b"x"))
    assert (await ran(sandbox, "import os\nfor n in range(45): os.unlink(str(n))")).ended == "ok"
    await sandbox.write("one", "a/b/c/d", parts(b"x" * (MOST.disk_bytes - (64 << 10))))
    assert (await ran(sandbox, "'there'")).logs == "'there'\n"


async def test_files_that_are_written_at_once_have_one_bound(sandbox: LocalSandbox, session: str) -> None:
    size = MOST.disk_bytes * 2 // 3
    writing = (sandbox.write("one", name, parts(*[b"x" * (size // 64)] * 64)) for name in ("a", "b"))
    came = await asyncio.gather(*writing, return_exceptions=True)
    assert any(isinstance(each, Full) for each in came)
    assert sum(file.bytes for file in await sandbox.files("one")) <= MOST.disk_bytes
