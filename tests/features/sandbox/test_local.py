"""What only the adapter that forks has: users of its own, and an eye on who is idle."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Event

import pytest
import pytest_asyncio

from service.features.sandbox import folder as folders
from service.features.sandbox.local import FIRST_UIDS, LocalSandbox, SessionPlaces, take_users
from service.features.sandbox.port import Full, SessionGone, SessionLimits, Unusable
from tests.support.sandbox.sandboxes import MOST, PLACES, TENANT, bare
from tests.support.waiting import until

LOOP = "import time\nwhile True: time.sleep(0.01)"
WRITE = "while True:\n  for n in range(9): open(f'f{n}', 'a').write('x' * 100_000)"
IDLE_SECONDS = 8.0

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest_asyncio.fixture
async def ending() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def started(ending: AsyncExitStack, places: SessionPlaces = PLACES) -> LocalSandbox:
    made = ending.enter_context(bare(places))
    await made.start()
    ending.push_async_callback(made.aclose)
    return made


@as_root
async def test_two_sandboxes_of_one_machine_have_no_user_in_common(ending: AsyncExitStack) -> None:
    first, second = [await started(ending) for _ in range(2)]
    users: list[int] = []
    for sandbox in (first, second):
        await sandbox.open("one", TENANT, MOST)
        users.append(int((await sandbox.run("one", "who", "import os; os.getuid()")).logs))
    ranges = [next(each for each in reversed(FIRST_UIDS) if each <= user) for user in users]
    assert ranges[0] != ranges[1]


@as_root
def test_users_are_taken_until_they_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.features.sandbox.local.tasks_of", lambda users: 0)  # of other tests' sandboxes
    taken = [take_users([tmp_path]) or (0, 0) for _ in FIRST_UIDS]
    assert [first for first, _ in taken] == list(FIRST_UIDS)
    with pytest.raises(Unusable, match="sandboxes of this machine use all users"):
        take_users([tmp_path])
    os.close(taken[5][1])
    again = take_users([tmp_path])
    assert again is not None
    assert again[0] == FIRST_UIDS[5]
    for _, lock in [*taken[:5], *taken[6:], again]:
        os.close(lock)


@as_root
def test_users_whose_processes_still_die_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.features.sandbox.local.FIRST_UIDS", FIRST_UIDS[-2:])
    with subprocess.Popen(["sleep", "60"], user=FIRST_UIDS[-2] + 1) as dying:
        meanwhile = take_users([tmp_path])
        dying.kill()
    after = take_users([tmp_path])
    assert meanwhile is not None
    assert after is not None
    assert [meanwhile[0], after[0]] == [FIRST_UIDS[-1], FIRST_UIDS[-2]]
    os.close(meanwhile[1])
    os.close(after[1])


async def test_who_is_idle_for_too_long_is_closed_and_who_works_is_not(ending: AsyncExitStack) -> None:
    sandbox = await started(ending, SessionPlaces(sessions=4, tenant_sessions=4, idle_seconds=IDLE_SECONDS))
    for name in ("idle", "busy", "used"):
        await sandbox.open(name, TENANT, MOST)
    begun = asyncio.get_running_loop().time()
    folder = sandbox.session("idle").folder
    working = asyncio.create_task(sandbox.run("busy", "long", LOOP))
    await until(lambda: _uses(sandbox, "used") and not folder.exists(), otherwise="the idle one is there")
    assert asyncio.get_running_loop().time() - begun >= IDLE_SECONDS
    with pytest.raises(SessionGone):
        await sandbox.run("idle", "late", "1")
    assert not working.done()
    await sandbox.stop("busy", "long")
    assert (await working).ended == "stopped"
    assert (await sandbox.run("used", "last", "6 * 7")).logs == "42\n"


async def test_who_opens_many_at_once_ends_no_more_of_others_than_its_share(ending: AsyncExitStack) -> None:
    sandbox = await started(ending, SessionPlaces(sessions=4, tenant_sessions=4))
    for number in range(4):
        await sandbox.open(f"other-{number}", "other", MOST)
        await sandbox.run(f"other-{number}", "first", "1")
    opening = (sandbox.open(f"own-{number}", TENANT, MOST) for number in range(8))
    opened = await asyncio.gather(*opening, return_exceptions=True)
    assert [type(each) for each in opened].count(Full) == 6
    for number in (2, 3):
        assert (await sandbox.run(f"other-{number}", "last", "6 * 7")).logs == "42\n"


async def test_whoever_fills_the_threads_of_the_service_delays_no_cell_and_no_look(ending: AsyncExitStack) -> None:
    sandbox = await started(ending)
    await sandbox.open("one", TENANT, MOST)
    full, end = ThreadPoolExecutor(1), Event()
    full.submit(end.wait)
    asyncio.get_running_loop().set_default_executor(full)
    try:
        async with asyncio.timeout(60):
            assert (await sandbox.run("one", "good", "6 * 7")).logs == "42\n"
            assert "its files took" in (await sandbox.run("one", "bad", WRITE)).logs
    finally:
        end.set()


async def test_closing_one_that_ended_by_itself_waits_until_its_folder_is_deleted(
    ending: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = await started(ending)
    await sandbox.open("one", TENANT, MOST)
    home, remove = sandbox.session("one").home, folders.remove_tree
    begun, end = Event(), Event()
    ending.callback(end.set)
    monkeypatch.setattr(folders, "remove_tree", lambda folder: (begun.set(), end.wait(), remove(folder)))
    await sandbox.run("one", "last", "import os; os._exit(0)")
    await until(begun.is_set)
    closing = asyncio.create_task(sandbox.close("one"))
    await asyncio.sleep(0)
    assert not closing.done()
    end.set()
    await closing
    assert not home.exists()


def _uses(sandbox: LocalSandbox, name: str) -> bool:
    sandbox.session(name).touch()
    return True


async def test_a_cell_is_interrupted_though_the_service_was_begun_where_interrupts_are_ignored(
    ending: AsyncExitStack,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sandbox = await started(ending)
        await sandbox.open("one", TENANT, SessionLimits(seconds=0.3))
        cell = await sandbox.run("one", "call", "while True: pass")
    finally:
        signal.signal(signal.SIGINT, before)
    assert cell.ended == "timeout"


def test_a_file_for_which_the_disk_has_no_room_is_refused(tmp_path: Path) -> None:
    writing = folders.FileWriting(tmp_path, "large", None)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), writing._file)
    with pytest.raises(Full, match="No space left"):
        writing.write(b"x")
    writing.close()
    assert not list(tmp_path.iterdir())


def test_each_path_that_is_listed_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    long = "/".join(["a" * 250] * 4 + ["b" * 20])
    (folder / long).parent.mkdir(parents=True)
    (folder / long).touch()
    (file,) = folders.files_below(folder, 9)
    os.close(folders.open_file(folder, file.path))
