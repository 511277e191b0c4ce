"""The rest when processes are killed: clients at work, and a server under load, with or without its file's end.

The clients do what programs/killed.py does. A subclass says what must be true afterwards.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.embedded import EmbeddedServer
from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.lengths import lengths
from tests.support.store.audit import dump
from tests.support.store.programs.killed import Told
from tests.support.store.sample import TENANT
from tests.support.store.servers import DebianServer
from tests.support.waiting import until

PROGRAM = "killed"
BATCH, AT_ONCE = 10, 4
UNSYNCED_SECONDS = 2.0
"""The loss of a server with appendfsync everysec: it begins an fsync each second, and while one is under way it
holds back what it would write for up to two."""

TAIL_BYTES = 60_000
"""The most that is cut from a file: more than what it wrote last, and had not acknowledged when it was killed."""


@dataclass
class Store:
    """A store whose users were killed, and what is behind it."""

    history: ConversationHistoryStore
    redis: Redis
    url: str
    prefix: str

    async def known(self, id: str) -> bool:
        """Whether a turn is there; nothing is touched."""
        try:
            await self.history.lineage(TENANT, id)
        except NotFound:
            return False
        return True

    async def is_unused(self) -> bool:
        """Whether nobody but this process is connected."""
        return all(client["name"] != self.prefix for client in await self.redis.client_list())

    async def keys(self, family: str) -> list[bytes]:
        """The keys of a family."""
        return [key async for key in self.redis.scan_iter(f"{self.prefix}:*:{family}:*", count=1000)]


Durable = EmbeddedServer | DebianServer
"""A test's hold on such a server. After `stop`, or a kill and `stop`, it can be started again."""


def durable(kind: str, folder: Path) -> Durable:
    """The embedded server ("valkey") or Debian's ("redis") on a folder, which is made; not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    return EmbeddedServer(folder) if kind == "valkey" else DebianServer(folder)


def torn_copy(folder: Path, copy: Path, lost_bytes: int) -> Path:
    """A copy of a server's folder whose append-only file lacks its last bytes; the copy's name."""
    shutil.copytree(folder / "appendonlydir", copy / "appendonlydir")
    (copy / "lock").touch()  # by which the embedded server knows a folder of its own
    file = max(copy.glob("appendonlydir/*.incr.aof"))
    with file.open("r+b") as tail:
        tail.truncate(max(0, file.stat().st_size - lost_bytes))
    return copy


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Store]:
    redis = connect(url)
    assert isinstance(redis, Redis)
    history = ConversationHistoryStore(connect(url), prefix=prefix, timeout_seconds=15.0)
    try:
        yield Store(history, redis, url, prefix)
    finally:
        await history.close()
        await redis.aclose()


@asynccontextmanager
async def talkers(program: str, url: str, prefix: str, *numbers: int) -> AsyncIterator[asyncio.StreamReader]:
    """The words of a program of forked.py, on connections that have the prefix for a name; it ends as it should."""
    command = [sys.executable, "-m", f"tests.support.store.programs.{program}", f"{url}?client_name={prefix}", prefix]
    process = await asyncio.create_subprocess_exec(
        *command, *map(str, numbers), cwd=ROOT, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout
        assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class Crashes:
    """The tests."""

    check_killed: Callable[[Store, Told], Awaitable[None]]
    """Asserts that clients were killed at work."""

    check: Callable[..., Awaitable[set[str]]]
    """Asserts all that must be true of a store once nobody uses it, but for what was done after `since`; returns what
    it lacks of what was acknowledged."""

    check_leavings: Callable[[Store, Told], Awaitable[None]]
    """Asserts that what clients left can be taken away."""

    async def load_and_kill(self, server: Durable, prefix: str, seed: int, fsync: str) -> tuple[Told, float]:
        """Let processes work on a server until it is killed; what they were told, and when that was."""
        told, enough = Told(), random.Random(seed).randint(100, 600)
        async with opened(server.url, prefix) as store:
            await store.redis.config_set("appendfsync", fsync)
        async with talkers(PROGRAM, server.url, prefix, seed, 3, 0) as lines:
            async for line in lines:
                told.note(line)
                if told.done >= enough:
                    break
            os.kill(server.pid, signal.SIGKILL)
            killed = time.time()
            async for line in lines:
                told.note(line)
        assert len(told.ended) == 3
        assert min(told.ended) > killed - 1, "the server failed before it was killed"
        return told, killed

    @pytest.mark.parametrize("kills", lengths(20, 1000))
    async def test_clients_that_are_killed_at_work_leave_what_is_whole(
        self, server_url: str, prefix: str, kills: int
    ) -> None:
        for batch in range(kills // BATCH):
            told = Told()
            async with opened(server_url, f"{prefix}-{batch}") as store:
                async with talkers(PROGRAM, server_url, store.prefix, batch, AT_ONCE, BATCH) as lines:
                    async for line in lines:
                        told.note(line)
                await until(store.is_unused, otherwise="a killed process is still connected")
                await self.check_killed(store, told)
                await self.check(store, told)
                await self.check_leavings(store, told)

    @pytest.mark.parametrize("rounds", lengths(1, 25))
    @pytest.mark.parametrize("fsync", ["always", "everysec"])
    @pytest.mark.parametrize("kind", ["valkey", "redis"])
    async def test_a_server_that_is_killed_keeps_what_it_acknowledged(
        self, tmp_path: Path, kind: str, fsync: str, rounds: int
    ) -> None:
        """All of it with `always`, all but the newest two seconds with `everysec`.

        A SIGKILL leaves what the server has written in the kernel's page cache, be it synced or not. So it can show
        that the server writes before it acknowledges, and that it finds its way through what it wrote. What a power cut
        takes it can't show: that is the next test's.
        """
        for seed in range(rounds):
            server = durable(kind, tmp_path)
            server.start()
            told, killed = await self.load_and_kill(server, f"kill-{seed}", seed, fsync)
            server.stop()
            server.start()
            async with opened(server.url, f"kill-{seed}") as store:
                since = None if fsync == "always" else killed - UNSYNCED_SECONDS
                await until(store.is_unused, otherwise="a killed process is still connected")
                await self.check(store, told, since=since)
            server.stop()

    @pytest.mark.parametrize("cuts", lengths(2, 100))
    @pytest.mark.parametrize("kind", ["valkey", "redis"])
    async def test_a_file_without_its_end_lacks_only_what_is_newest(
        self, tmp_path: Path, kind: str, prefix: str, cuts: int
    ) -> None:
        """A power cut takes the end of the append-only file, in the middle of a command or of a script's commands.

        The server starts all the same (aof-load-truncated), takes a script's commands together or not at all, and what
        it lacks is newer than all that it has.
        """
        chance, lacking = random.Random(cuts), set[str]()
        server = durable(kind, tmp_path / "whole")
        server.start()
        told, _ = await self.load_and_kill(server, prefix, seed=cuts, fsync="everysec")
        server.stop()
        for number in range(cuts):
            lost_bytes = round(TAIL_BYTES ** chance.random()) if number else TAIL_BYTES
            torn = durable(kind, torn_copy(tmp_path / "whole", tmp_path / str(number), lost_bytes))
            torn.start()
            async with opened(torn.url, prefix) as store:
                nodes = [node for key, node in (await dump(store.redis, prefix)).items() if ":node:" in key]
                newest = max(int(node[b"created"]) for node in nodes) / 1e6
                lacking |= await self.check(store, told, since=newest)
            torn.stop()
        assert lacking, "the cuts took nothing away"
