"""`harmonium sandbox` as an operator runs it: where it listens, who may use it, how it ends and what it leaves."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from service.commands.command_line import app
from service.features.sandbox.port import Cell, SessionGone, Unusable
from service.features.sandbox.remote import RemoteSandbox
from tests.support.ports import free_port
from tests.support.sandbox.sandboxes import MOST, TENANT, SandboxProcess, folder_for_all, folder_in
from tests.support.service.process import runs
from tests.support.waiting import until, wait_until

KEY = "a-key-of-the-sandbox"


@pytest.fixture
def base() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def process(base: Path) -> Iterator[SandboxProcess]:
    started = SandboxProcess(base / "process", base)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def lasting() -> Iterator[SandboxProcess]:
    """One for tests after which it runs as before."""
    with folder_for_all() as base:
        started = SandboxProcess(base / "process", base)
        yield started
        started.stop()


@asynccontextmanager
async def opened(process: SandboxProcess) -> AsyncIterator[RemoteSandbox]:
    """A session with a variable."""
    made = RemoteSandbox(process.listen)
    await made.open("one", TENANT, MOST)
    assert await made.run("one", "first", "kept = 7; kept") == Cell("ok", "7\n")
    yield made
    await made.aclose()


@pytest.fixture
async def sandbox(process: SandboxProcess) -> AsyncIterator[RemoteSandbox]:
    async with opened(process) as made:
        yield made


def refused(*arguments: str, **environment: str) -> str:
    """What the command says when it doesn't start."""
    settings = {f"HARMONIUM_{name.upper()}": value for name, value in environment.items()}
    done = CliRunner().invoke(app, ["sandbox", *arguments], env=settings)
    assert done.exit_code in (1, 2), done
    return done.stderr


def left(base: Path) -> list[str]:
    """The folders of processes that have, or had, sessions."""
    return [path.name for path in folder_in(base).iterdir() if path.name.startswith("run-")]


def sessions_of(process: SandboxProcess) -> set[int]:
    found = children(process.process.pid)
    return found | {each for child in found for each in children(child)}


async def has_begun(sandbox: RemoteSandbox) -> bool:
    """Whether a cell has made the file that tells."""
    return any(file.path.endswith("/begun") for file in await sandbox.files("one"))


def children(pid: int) -> set[int]:
    return {int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


async def test_its_socket_is_for_its_user_and_group_and_gone_at_the_end(
    process: SandboxProcess, base: Path, sandbox: RemoteSandbox
) -> None:
    path = base / "sandbox.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    await sandbox.aclose()
    process.ask_to_stop()
    assert process.wait() == 0
    assert not path.exists()
    assert left(base) == []


async def test_killed_it_takes_its_sessions_along_and_the_next_one_begins_without_them(
    process: SandboxProcess, sandbox: RemoteSandbox, base: Path
) -> None:
    pids = await asyncio.to_thread(sessions_of, process)
    assert len(pids) == 2
    running = asyncio.create_task(sandbox.run("one", "long", "while True: pass"))
    process.kill()
    wait_until(lambda: not any(map(runs, pids)))
    with pytest.raises(Unusable):
        await running
    before = left(base)
    assert len(before) == 1
    await asyncio.to_thread(process.start)
    assert not set(before) & set(left(base))
    with pytest.raises(SessionGone):
        await sandbox.run("one", "later", "kept")
    await sandbox.open("one", TENANT, MOST)
    assert (await sandbox.run("one", "first", "'kept' in dir()")).logs == "False\n"


async def test_where_the_process_that_forks_dies_sessions_are_lost_and_others_can_be_opened(
    process: SandboxProcess, sandbox: RemoteSandbox
) -> None:
    (zygote,) = children(process.process.pid)
    pids = sessions_of(process)
    running = asyncio.create_task(sandbox.run("one", "long", "open('begun', 'w').close()\nwhile True: pass"))
    await until(lambda: has_begun(sandbox))
    os.kill(zygote, signal.SIGKILL)
    assert (await running).ended == "lost"
    wait_until(lambda: not any(map(runs, pids)))
    await sandbox.open("one", TENANT, MOST)
    assert (await sandbox.run("one", "again", "'kept' in dir()")).logs == "False\n"


async def test_over_tcp_it_wants_a_key_and_only_who_has_that_may_use_it(base: Path) -> None:
    place = f"http://127.0.0.1:{free_port()}"
    assert "HARMONIUM_SANDBOX_KEY" in refused("--sandbox-listen", place)
    process = SandboxProcess(base / "process", base, sandbox_listen=place, sandbox_key=KEY)
    try:
        sandbox = RemoteSandbox(place, KEY)
        await sandbox.start()
        await sandbox.open("one", TENANT, MOST)
        assert (await sandbox.run("one", "first", "1 + 1")).logs == "2\n"
        await sandbox.aclose()
        for key in ("", "another-key-of-16"):
            stranger = RemoteSandbox(place, key)
            with pytest.raises(Unusable, match="The key is wrong"):
                await stranger.start()
            with pytest.raises(Unusable, match="The key is wrong"):
                await stranger.run("one", "first", "1 + 1")
            await stranger.aclose()
        assert KEY not in process.log
    finally:
        process.stop()


def test_a_body_that_is_no_request_is_refused(lasting: SandboxProcess) -> None:
    bodies = {
        b"": 400,
        b'{"session": "one"}': 400,
        b'{"session": "a/b", "tenant": "t", "limits": {}}': 400,
        b'{"session": "one", "call": "c", "code": "\xff"}': 400,
        b'{"session": "' + b"x" * (3 << 20): 400,
        b'{"session": "none", "call": "c", "code": ""}': 404,
        b'{"session":' + b"[" * 100_000: 400,
    }
    with httpx.Client(transport=httpx.HTTPTransport(uds=lasting.listen.removeprefix("unix://"))) as client:
        for body, status in bodies.items():
            verb = "run" if b"code" in body else "open"
            assert client.post(f"http://sandbox/v1/{verb}", content=body).status_code == status, body[:50]
        assert client.post("http://sandbox/v1/unknown", content=b"{}").status_code == 404
        assert client.get("http://sandbox/health").json() == {"status": "ok"}


def test_a_path_on_which_one_listens_is_refused(lasting: SandboxProcess) -> None:
    assert "another sandbox listens there" in refused("--sandbox-listen", lasting.listen)


def test_settings_that_make_no_sense_are_refused_by_name() -> None:
    for name, value in {
        "sandbox_listen": "https://here:80",
        "sandbox_key": "short",
        "sandbox": "http://here:80",
    }.items():
        assert f"HARMONIUM_{name.upper()}" in refused(**{name: value})
    assert "HARMONIUM_SANDBOX=local" in refused(sandbox="local", workers="2")
