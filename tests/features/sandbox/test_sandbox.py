"""What every adapter of the sandbox's port does: cells, calls, files, bounds, ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from service.features.sandbox.port import Cell, Full, NoFile, Sandbox, SessionGone, SessionLimits, Unusable
from service.features.sandbox.remote import RemoteSandbox
from tests.support.sandbox.sandboxes import MOST, PLACES, TENANT, SandboxProcess, folder_for_all, local, parts
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOP = "import time\nwhile True: time.sleep(0.01)"
BEGUN = f"open('begun', 'w').close()\n{LOOP}"
STUBBORN = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + LOOP
WITHOUT_NAME = "import os\nkept = [os.open('.', os.O_TMPFILE | os.O_RDWR) for _ in range(9)]\n"
TEMPORARY = "from tempfile import TemporaryFile as file\nkept = []\n"
PARTS_OF_MEMORY = """
import ctypes, mmap, time
kept = mmap.mmap(-1, 5_000 * 4096)
first = ctypes.addressof(ctypes.c_char.from_buffer(kept))
for page in range(0, 5_000, 2): ctypes.CDLL(None).mprotect(ctypes.c_void_p(first + 4096 * page), 4096, 1)
time.sleep(15)
"""


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[pytest.param("local", marks=pytest.mark.full), "remote"]
)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """The one behind `harmonium sandbox`, whose process has a local one; and in the long form a local one by itself."""
    with folder_for_all() as base, ExitStack() as ending:
        made: Sandbox = local(base)
        if request.param == "remote":
            process = SandboxProcess(base / "process", base)
            ending.callback(process.stop)
            made = RemoteSandbox(process.listen)
        await made.start()
        yield made
        await made.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def session(sandbox: Sandbox) -> AsyncIterator[str]:
    await sandbox.open("one", TENANT, MOST)
    yield "one"
    await sandbox.close("one")


async def ran(sandbox: Sandbox, code: str, *, call: str = "", session: str = "one") -> Cell:
    return await sandbox.run(session, call or f"call-{hash(code)}", code)


async def content(sandbox: Sandbox, path: str) -> bytes:
    return b"".join([part async for part in sandbox.read("one", path)])


async def test_cells_share_variables_and_show_their_last_value(sandbox: Sandbox, session: str) -> None:
    assert await ran(sandbox, "import math\nx = 6") == Cell("ok")
    assert await ran(sandbox, "print('six'); x * math.floor(7.9)") == Cell("ok", "six\n42\n")
    assert await ran(sandbox, "_ + 1") == Cell("ok", "43\n")
    assert await ran(sandbox, "None") == Cell("ok")


async def test_an_exception_is_shown_from_the_cell_on_and_what_was_before_it_stays(
    sandbox: Sandbox, session: str
) -> None:
    cell = await ran(sandbox, "kept = 1\ndef f():\n    return 1 / 0\nimport sys; print('warned', file=sys.stderr)\nf()")
    assert cell.ended == "raised"
    assert cell.logs.splitlines()[:3] == [
        "warned",
        "Traceback (most recent call last):",
        '  File "<cell 1>", line 5, in <module>',
    ]
    assert "    return 1 / 0" in cell.logs
    assert cell.logs.endswith("ZeroDivisionError: division by zero\n")
    assert "service" not in cell.logs
    assert (await ran(sandbox, "kept")).logs == "1\n"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("input()", "EOFError: EOF when reading a line"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseExceptionGroup('both', [ValueError(1)])", "    +------------------------------------"),
        ("import os; os.fork()", "PermissionError: [Errno 1] Operation not permitted"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E", "E: <exception str() failed>"),
        ("class R:\n    def __repr__(self): 1/0\nR()", "ZeroDivisionError: division by zero"),
    ],
)
async def test_whatever_a_cell_raises_ends_the_cell_alone(sandbox: Sandbox, session: str, code: str, last: str) -> None:
    cell = await ran(sandbox, code)
    assert cell.ended == "raised"
    assert cell.logs.splitlines()[-1].removeprefix("__main__.") == last
    assert (await ran(sandbox, "1 + 1")).logs == "2\n"


async def test_of_a_long_text_both_ends_are_shown(sandbox: Sandbox, session: str) -> None:
    cell = await ran(sandbox, "print('a' * 5_000 + 'b' * 5_000, end='')")
    head, middle, tail = cell.logs.split("\n")
    assert (head, middle, tail) == ("a" * 1000, "… 8,000 characters left out …", "b" * 1000)
    many = await ran(sandbox, "for n in range(100_000): print(n)")
    assert many.logs.startswith("0\n1\n2\n")
    assert many.logs.endswith("99998\n99999\n")
    assert len(many.logs) < 2_100


async def test_open_figures_are_shown_as_png_and_closed(sandbox: Sandbox, session: str) -> None:
    drawn = await ran(sandbox, "import matplotlib.pyplot as plt\nfor n in range(5):\n  plt.figure(); plt.plot([n, 1])")
    assert [image.data[:8] for image in drawn.images] == [b"\x89PNG\r\n\x1a\n"] * 4
    assert drawn.logs == "1 more figures are not shown: a cell shows 4\n"
    assert (await ran(sandbox, "plt.get_fignums()")).logs == "[]\n"


async def test_sessions_draw_other_random_numbers(sandbox: Sandbox, session: str) -> None:
    await sandbox.open("two", TENANT, MOST)
    code = "import random, numpy, uuid\nrandom.random(), numpy.random.random(), uuid.uuid4()"
    mine, other = await ran(sandbox, code), await ran(sandbox, code, session="two")
    assert not set(mine.logs[1:-2].split(", ")) & set(other.logs[1:-2].split(", "))
    await sandbox.close("two")


async def test_a_cell_says_which_files_it_wrote(sandbox: Sandbox, session: str) -> None:
    folder = (await sandbox.open("one", TENANT, MOST)).folder
    await sandbox.write("one", "/mnt/data/given.txt", parts(b"1,", b"2"))
    wrote = await ran(
        sandbox, f"import os\nos.makedirs('{folder}/a/b'); open('a/b/c.txt', 'w').write(open('given.txt').read())"
    )
    assert wrote.files == ("/mnt/data/a/b/c.txt",)
    assert (await ran(sandbox, "open('a/b/c.txt').read()")) == Cell("ok", "'1,2'\n")
    assert (await ran(sandbox, "open('a/b/c.txt', 'a').write('!'); os.remove('given.txt')")).files == wrote.files
    assert await content(sandbox, "/mnt/data/a/b/c.txt") == b"1,2!"


async def test_files_are_listed_written_replaced_and_removed(sandbox: Sandbox, session: str) -> None:
    made = await sandbox.write("one", "x/y.bin", parts(b"a" * 300_000, b"b"))
    assert (made.path, made.bytes) == ("/mnt/data/x/y.bin", 300_001)
    assert (await sandbox.write("one", "x/y.bin", parts(b"short"))).bytes == 5
    (listed,) = await sandbox.files("one")
    assert (listed.path, listed.bytes) == ("/mnt/data/x/y.bin", 5)
    assert await content(sandbox, "x/y.bin") == b"short"
    assert (await ran(sandbox, "open('x/y.bin', 'a').write('er')")).ended == "ok"
    await sandbox.remove("one", "x/y.bin")
    assert await sandbox.files("one") == []
    with pytest.raises(NoFile):
        await content(sandbox, "x/y.bin")
    with pytest.raises(NoFile):
        await sandbox.remove("one", "x/y.bin")


@pytest.mark.parametrize(
    "path",
    ["", "/", "/mnt/data/", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a" * 256, "a\0", "a/" * 40 + "b"],
)
async def test_a_path_that_is_none_of_a_file_is_refused(sandbox: Sandbox, session: str, path: str) -> None:
    with pytest.raises(NoFile):
        await sandbox.write("one", path, parts(b"x"))
    with pytest.raises(NoFile):
        await content(sandbox, path)
    with pytest.raises(NoFile):
        await sandbox.remove("one", path)
    assert await sandbox.files("one") == []


async def test_a_file_that_does_not_fit_is_refused_and_not_there(sandbox: Sandbox, session: str) -> None:
    with pytest.raises(Full):
        await sandbox.write("one", "big", parts(*[b"x" * (1 << 20)] * 5))
    assert await sandbox.files("one") == []
    await ran(sandbox, "for n in range(50): open(str(n), 'w').close()")
    with pytest.raises(Full):
        await sandbox.write("one", "another", parts(b"x"))


async def test_a_call_runs_once_however_often_it_is_asked_for(sandbox: Sandbox, session: str) -> None:
    code = "import time; time.sleep(0.2); count = globals().get('count', 0) + 1; count"
    together = await asyncio.gather(*(ran(sandbox, code, call="same") for _ in range(3)))
    assert together == [Cell("ok", "1\n")] * 3
    assert await ran(sandbox, code, call="same") == Cell("ok", "1\n")
    assert await ran(sandbox, code, call="other") == Cell("ok", "2\n")


async def test_more_cells_than_may_wait_are_refused(sandbox: Sandbox, session: str) -> None:
    waiting = [asyncio.create_task(ran(sandbox, f"{LOOP} #{n}", call=f"w{n}")) for n in range(18)]
    refused, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [type(task.exception()) for task in refused] == [Full]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await ran(sandbox, "'free'")).logs == "'free'\n"


async def test_who_no_longer_wants_a_cell_interrupts_it_and_its_variables_stay(sandbox: Sandbox, session: str) -> None:
    await ran(sandbox, "kept = 1")
    running = asyncio.create_task(ran(sandbox, f"begun = 2\nopen('begun', 'w').close()\n{LOOP}", call="long"))
    await until(lambda: sandbox.files("one"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    cell = await ran(sandbox, "unused", call="long")
    assert cell.ended == "stopped"
    assert cell.logs.endswith("KeyboardInterrupt\n")
    assert (await ran(sandbox, "kept, begun")).logs == "(1, 2)\n"


async def test_a_stopped_call_that_waits_never_runs(sandbox: Sandbox, session: str) -> None:
    first = asyncio.create_task(ran(sandbox, LOOP, call="first"))
    second = asyncio.create_task(ran(sandbox, "ran = True", call="second"))
    await until(lambda: _are_asked(sandbox, first, second))
    await sandbox.stop("one", "second")
    await sandbox.stop("one", "first")
    assert (await first).ended == "stopped"
    assert await second == Cell("stopped")
    assert (await ran(sandbox, "'ran' in globals()")).logs == "False\n"


async def _are_asked(sandbox: Sandbox, *tasks: "asyncio.Task[Cell]") -> bool:
    await sandbox.files("one")  # which each of them was asked before
    return not any(task.done() for task in tasks)


async def test_a_cell_is_interrupted_when_its_time_is_up(sandbox: Sandbox) -> None:
    await sandbox.open("short", TENANT, SessionLimits(seconds=2.0))
    cell = await ran(sandbox, f"kept = 1\n{LOOP}", session="short")
    assert cell.ended == "timeout"
    assert cell.logs.endswith("KeyboardInterrupt\n")
    assert (await ran(sandbox, "kept", session="short")).logs == "1\n"
    await sandbox.close("short")


async def test_a_cell_that_can_not_be_interrupted_is_killed_with_its_session(sandbox: Sandbox) -> None:
    await sandbox.open("short", TENANT, SessionLimits(seconds=2.0))
    cell = await ran(sandbox, STUBBORN, session="short")
    assert cell.ended == "lost"
    assert cell.logs == (
        "The session is lost, with its variables and files: a cell continued for 5 s after it was interrupted.\n"
    )
    await opens_anew(sandbox, "short")


async def opens_anew(sandbox: Sandbox, session: str) -> None:
    """A session is gone, and another one of its name knows nothing of it."""
    with pytest.raises(SessionGone):
        await ran(sandbox, "1", session=session, call="later")
    await sandbox.open(session, TENANT, MOST)
    assert (await ran(sandbox, "import os; dir().count('kept'), os.listdir()", session=session)).logs == "(0, [])\n"
    await sandbox.close(session)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os._exit(0)", "its process ended by itself"),
        ("import ctypes; ctypes.string_at(0)", "Python crashed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it took more processor time than it may, or the"),
        ("import os; os.close(3)", "its process ended by itself"),
        ("while True:\n  for n in range(9): open(f'f{n}', 'a').write('x' * 100_000)", "its files took"),
        ("n = 0\nwhile True:\n  n += 1; open(str(n), 'w').close()", "it had more than 50 files"),
        ("import os\nwhile True: os.mkdir('d'); os.chdir('d')", "it had more than 50 files"),
        (f"{WITHOUT_NAME}while True:\n  for f in kept: os.write(f, b'x' * 100_000)", "its files took"),
        (f"{TEMPORARY}while True: kept.append(file()); kept[-1].write(b'x' * 900_000)", "its files took"),
        ("import tempfile\nfor _ in range(60): tempfile.mkstemp()", "it had more than 50 files"),
        (PARTS_OF_MEMORY, "it had more than 4,096 parts of memory"),
    ],
)  # fmt: skip
async def test_what_breaks_a_session_breaks_no_other(sandbox: Sandbox, session: str, code: str, why: str) -> None:
    await sandbox.open("bad", "eve", MOST)
    await ran(sandbox, "kept = 7")
    lost = await ran(sandbox, code, session="bad")
    assert lost.ended == "lost"
    assert lost.logs.startswith(f"The session is lost, with its variables and files: {why}")
    with pytest.raises(SessionGone):
        await ran(sandbox, "1", session="bad", call="later")
    assert (await ran(sandbox, "kept")).logs == "7\n"
    await sandbox.close("bad")  # it has its place until its folder is deleted


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("bytearray(300 << 20)", "MemoryError"),
        ("kept = []\nwhile True: kept.append(bytearray(1 << 20))", "MemoryError"),
        ("import mmap; mmap.mmap(-1, 300 << 20)", "OSError: [Errno 12] Cannot allocate memory"),
        ("file = open('big', 'wb')\nwhile True: file.write(b'x' * 100_000)", "OSError: [Errno 27] File too large"),
        ("open('big', 'wb').truncate(1 << 40)", "OSError: [Errno 27] File too large"),
        ("import os\nkept = [os.open('/dev/null', 0) for _ in range(300)]", "OSError: [Errno 24] Too many open files"),
        (
            "import threading\nkept = threading.Event()\nthreading.stack_size(64 << 10)\n"
            "try:\n  while True: threading.Thread(target=kept.wait).start()\nfinally: kept.set()",
            "RuntimeError: can't start new thread",
        ),
        ("import os\nwhile True: os.fork()", "PermissionError: [Errno 1] Operation not permitted"),
        ("import os; os.symlink('/etc', 'etc')", "PermissionError: [Errno 1] Operation not permitted: '/etc' -> 'etc'"),
    ],
)
async def test_a_bound_is_an_error_that_a_session_outlives(
    sandbox: Sandbox, session: str, code: str, error: str
) -> None:
    cell = await ran(sandbox, code)
    assert cell.ended == "raised"
    assert cell.logs.splitlines()[-1].startswith(error)
    assert (await ran(sandbox, "kept = file = None; 1 + 1")).logs == "2\n"


async def test_places_are_bounded_in_all_and_for_a_tenant_and_free_again_after_a_close(sandbox: Sandbox) -> None:
    for n in range(PLACES.tenant_sessions):
        await sandbox.open(f"s{n}", TENANT, MOST)  # its first cell is about to run
    with pytest.raises(Full, match="a tenant may have 3 sessions"):
        await sandbox.open("more", TENANT, MOST)
    await sandbox.open("other", "eve", MOST)
    with pytest.raises(Full, match="all 4 sessions"):
        await sandbox.open("more", "bob", MOST)
    assert await sandbox.open("s0", TENANT, MOST), "one that is there needs no place"
    for name in ("s0", "s1", "s2", "other"):
        await sandbox.close(name)
    await sandbox.open("more", "bob", MOST)
    await sandbox.close("more")


async def idle(sandbox: Sandbox, *names: str, tenant: str = TENANT, lasting: bool = False) -> None:
    """Have sessions that have run a cell, the first one longest ago."""
    for name in names:
        await sandbox.open(name, tenant, MOST, lasting=lasting)
        await ran(sandbox, "1", session=name)


async def closed(sandbox: Sandbox, *names: str) -> None:
    for name in names:
        await sandbox.close(name)


async def test_the_one_that_was_idle_longest_gives_its_place_up(sandbox: Sandbox) -> None:
    await idle(sandbox, "s0", lasting=True)
    await idle(sandbox, "s1", "s2")
    await sandbox.write("s1", "given", parts(b"x"))
    for name, gone in (("s3", "s2"), ("s4", "s3"), ("s5", "s4")):
        opened = await sandbox.open(name, TENANT, MOST)
        assert opened.instead_of == ((TENANT, gone),)
        with pytest.raises(SessionGone):
            await sandbox.files(gone)
        await ran(sandbox, "1", session=name)
    await idle(sandbox, "s6", lasting=True)
    assert (await sandbox.open("s7", TENANT, MOST)).instead_of == ((TENANT, "s0"),)
    await closed(sandbox, "s1", "s6", "s7")


async def test_a_tenant_that_has_most_gives_way_and_none_to_one_that_has_as_many(sandbox: Sandbox) -> None:
    await idle(sandbox, "eve", tenant="eve")
    await idle(sandbox, "s0", "s1", "s2")
    assert (await sandbox.open("s3", TENANT, MOST)).instead_of == ((TENANT, "s0"),), "it has its share"
    await ran(sandbox, "1", session="s3")
    assert (await sandbox.open("bob", "bob", MOST)).instead_of == ((TENANT, "s1"),), "it has most"
    assert (await sandbox.open("bob2", "bob", MOST)).instead_of == ((TENANT, "s2"),), "it has more"
    with pytest.raises(Full, match="all 4 sessions"):
        await sandbox.open("bob3", "bob", MOST)  # others have less, and its own are about to run
    await ran(sandbox, "1", session="bob")
    assert (await sandbox.open("bob3", "bob", MOST)).instead_of == (("bob", "bob"),), "its own, as others have less"
    await closed(sandbox, "eve", "s3", "bob2", "bob3")


async def test_what_is_not_there_is_gone_and_closing_it_does_nothing(sandbox: Sandbox) -> None:
    for action in (
        lambda: sandbox.run("none", "c", "1"),
        lambda: sandbox.stop("none", "c"),
        lambda: sandbox.files("none"),
        lambda: sandbox.write("none", "x", parts(b"x")),
        lambda: sandbox.remove("none", "x"),
    ):
        with pytest.raises(SessionGone):
            await action()
    with pytest.raises(SessionGone):
        [part async for part in sandbox.read("none", "x")]
    await sandbox.close("none")


async def test_another_tenant_s_session_looks_as_if_it_did_not_exist(sandbox: Sandbox, session: str) -> None:
    with pytest.raises(SessionGone):
        await sandbox.open("one", "eve", MOST)


async def test_closing_ends_a_cell_that_runs(sandbox: Sandbox) -> None:
    await sandbox.open("closed", TENANT, MOST)
    running = asyncio.create_task(ran(sandbox, BEGUN, session="closed"))
    await until(lambda: sandbox.files("closed"))
    await sandbox.close("closed")
    assert (await running).logs == "The session is lost, with its variables and files: it was closed.\n"
    await opens_anew(sandbox, "closed")


async def test_a_session_s_limits_are_no_more_than_the_sandbox_s(sandbox: Sandbox) -> None:
    asked = SessionLimits(memory_bytes=1 << 40, disk_bytes=1 << 40, seconds=1e6, output_chars=1 << 30)
    await sandbox.open("greedy", TENANT, asked)
    assert (await ran(sandbox, "bytearray(300 << 20)", session="greedy")).logs.endswith("MemoryError\n")
    large = await ran(sandbox, "open('large', 'wb').write(bytes(5 << 20))", session="greedy")
    assert large.logs.endswith("OSError: [Errno 27] File too large\n")
    await sandbox.close("greedy")


@pytest.mark.parametrize("name", ["", "a/b", "..", "a" * 65, "ä"])
async def test_a_name_that_could_be_none_is_refused(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a session"):
        await sandbox.open(name, TENANT, MOST)


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", [b"<html>", b'{"x":' + b"[" * 100_000, b""], ids=["html", "deep", "none"])
async def test_what_answers_and_is_no_sandbox_is_unusable(status: int, body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, status=status)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as server:
        sandbox = RemoteSandbox(str(server.make_url("")))
        try:
            if status == 404:
                with pytest.raises(Unusable):
                    await sandbox.start()
            for action in (
                lambda: sandbox.open("one", TENANT, MOST),
                lambda: sandbox.run("one", "call", "1"),
                lambda: sandbox.files("one"),
                lambda: sandbox.write("one", "x", parts(b"x")),
            ):
                with pytest.raises(Unusable, match=r"the server at .* is not a sandbox"):
                    await action()
        finally:
            await sandbox.aclose()


@pytest.mark.parametrize("status", [404, 422, 429])
async def test_a_start_takes_no_refusal_of_another_server_for_that_of_a_sandbox(status: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"message": "Not here"}, status=status)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(application) as server:
        sandbox = RemoteSandbox(str(server.make_url("")))
        with pytest.raises(Unusable, match=r"the server at .* is not a sandbox"):
            await sandbox.start()
        await sandbox.aclose()


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_nobody_is_asked_where_a_sandbox_points_to(status: int) -> None:
    reached: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.json_response([])

    async def point(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": str(inside.make_url("/"))})

    pointing, inner = web.Application(), web.Application()
    pointing.router.add_route("*", "/{path:.*}", point)
    inner.router.add_route("*", "/{path:.*}", elsewhere)
    async with TestServer(inner) as inside, TestServer(pointing) as server:
        sandbox = RemoteSandbox(str(server.make_url("")), "a-key-of-16-chars")
        for action in (
            lambda: sandbox.files("one"),
            lambda: sandbox.run("one", "call", "1"),
            lambda: sandbox.write("one", "x", parts(b"x")),
        ):
            with pytest.raises(Unusable, match=r"the server at .* is not a sandbox"):
                await action()
        await sandbox.aclose()
    assert reached == []


async def test_a_session_that_may_be_idle_for_less_is_closed_earlier() -> None:
    with folder_for_all() as base:
        sandbox = local(base, replace(PLACES, idle_seconds=40))
        await sandbox.start()
        await sandbox.open("short", TENANT, SessionLimits(idle_seconds=0.5))
        await sandbox.open("long", TENANT, SessionLimits())
        await until(lambda: len(list(base.glob("run-*/s-*"))) == 1)
        assert await sandbox.files("long") == []
        await sandbox.aclose()
