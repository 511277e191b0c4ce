"""A disk that fills up below the embedded server: what was acknowledged is there, whatever comes next."""

import asyncio
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis import Redis

from store.embedded import EmbeddedServer
from store.errors import DiskFull, StoreError, StoreUnavailable
from store.guard import Reserve, ServerGuard
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, Turn
from tests.support.store.disks import MIB, fill, small_disk
from tests.support.store.sample import TENANT
from tests.support.store.servers import started_after_a_kill
from tests.support.waiting import until, wait_until

NO_RESERVE = Reserve(0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", 48)


@asynccontextmanager
async def store_of(server: EmbeddedServer) -> AsyncIterator[ConversationHistoryStore]:
    store = ConversationHistoryStore(connect(server.url))
    yield store
    await store.close()


async def keep(store: ConversationHistoryStore, kib: int) -> str:
    turn = Turn(store.new_id(), None, Status.COMPLETED, (), os.urandom(kib << 10))
    await store.append(TENANT, turn)
    return turn.id


async def keep_until_refused(store: ConversationHistoryStore, kept: list[str], pause: float = 0) -> None:
    """Store turns, with a pause behind each for the guard to look, until one is refused."""
    while True:
        kept.append(await keep(store, 200))
        await asyncio.sleep(pause)


async def missing(server: EmbeddedServer, ids: list[str]) -> list[str]:
    """Those of the turns that are not there."""
    lost: list[str] = []
    async with store_of(server) as store:
        for each in ids:
            try:
                await store.get(TENANT, each)
            except StoreUnavailable:
                raise
            except StoreError:
                lost.append(each)
    return lost


def writes(server: EmbeddedServer) -> bool:
    return persistence(server)["aof_last_write_status"] == "ok"


def persistence(server: EmbeddedServer) -> dict[str, object]:
    with Redis.from_url(server.url) as client:
        return client.info()


async def test_storing_stops_before_the_disk_is_full_and_reading_and_deleting_go_on(disk: Path) -> None:
    with EmbeddedServer(disk / "data", reserve=Reserve(12 * MIB)) as server:
        async with store_of(server) as store:
            kept = [await keep(store, 100) for _ in range(20)]
            filler = fill(disk, but=6 * MIB)
            await until(lambda: persistence(server)["maxmemory"] == 1)
            for _ in range(3):
                with pytest.raises(DiskFull):
                    await keep(store, 100)
            assert len([await store.get(TENANT, each) for each in kept]) == 20
            await store.forget(TENANT, kept.pop())
            assert writes(server)
            filler.unlink()
            await until(lambda: keep(store, 100), passing=DiskFull)
        assert await missing(server, kept) == []


async def test_what_is_deleted_on_a_full_disk_makes_room_on_it(disk: Path) -> None:
    with EmbeddedServer(disk / "data", reserve=Reserve(8 * MIB)) as server:
        async with store_of(server) as store:
            kept: list[str] = []
            with pytest.raises(DiskFull):
                await keep_until_refused(store, kept, pause=0.03)
            gone, kept = kept[:-10], kept[-10:]
            for each in gone:
                await store.forget(TENANT, each)
            kept.append(await until(lambda: keep(store, 200), passing=DiskFull))
        assert await missing(server, kept) == []


async def with_a_hole(server: EmbeddedServer, disk: Path) -> list[str]:
    """Have a server meet a full disk for a moment, and go on; what it acknowledged."""
    async with store_of(server) as store:
        kept = [await keep(store, 50) for _ in range(20)]
        with Redis.from_url(server.url) as client:
            client.bgrewriteaof()
        await until(lambda: persistence(server)["aof_rewrites"] == 1)
        await until(lambda: not persistence(server)["aof_rewrite_in_progress"])
        filler = fill(disk, but=700_000)
        with pytest.raises(StoreUnavailable):
            await keep_until_refused(store, kept)
        filler.unlink()
        kept.append(await until(lambda: keep(store, 50), passing=StoreUnavailable))
        kept += [await keep(store, 50) for _ in range(20)]
    return kept


async def test_a_disk_that_was_full_for_a_moment_leaves_nothing_behind(disk: Path) -> None:
    with EmbeddedServer(disk / "data", reserve=NO_RESERVE) as server:
        kept = await with_a_hole(server, disk)
        await until(lambda: persistence(server)["aof_rewrites"] == 2)
        await until(lambda: not persistence(server)["aof_rewrite_in_progress"])
    with EmbeddedServer(disk / "data", reserve=NO_RESERVE) as server:
        assert await missing(server, kept) == []
    assert not (disk / "data" / "damaged").exists()


async def test_a_hole_in_the_file_is_cut_at_the_next_start_and_told(
    disk: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerGuard, "tick", lambda guard: None)
    with EmbeddedServer(disk / "data", reserve=NO_RESERVE) as server:
        kept = await with_a_hole(server, disk)
        os.kill(server.pid, signal.SIGKILL)
    with EmbeddedServer(disk / "data", reserve=NO_RESERVE) as server:
        assert await missing(server, kept) == []
    assert "zeros, where the disk was full" in caplog.text
    assert len(list((disk / "data" / "damaged" / "1").iterdir())) == 2


async def keep_in_the_file(server: EmbeddedServer, store: ConversationHistoryStore, kib: int) -> str:
    """Store a turn, and wait until its write is done or failed: the server delays writes while it syncs its file."""
    id = await keep(store, kib)
    await until(lambda: persistence(server)["aof_buffer_length"] == 0 or not writes(server))
    return id


async def _round(folder: Path, disk: Path, chance: random.Random, kept: list[str]) -> None:
    """Fill the disk at random, kill or stop the server at random, and start it again: nothing is missing."""
    server = EmbeddedServer(folder, reserve=Reserve(6 * MIB if chance.random() < 0.5 else 0))
    with started_after_a_kill(server):
        assert await missing(server, kept) == []
        async with store_of(server) as store:
            for each in kept[: len(kept) // 2] if len(kept) > 40 or chance.random() < 0.5 else ():
                kept.remove(each)
                with suppress(StoreUnavailable):  # where the disk is full already, and has no reserve
                    await store.forget(TENANT, each)
            filler = fill(disk, but=chance.randrange(3 * MIB))
            for _ in range(chance.randrange(30)):
                try:
                    kept.append(await keep_in_the_file(server, store, chance.randrange(1, 300)))
                except (DiskFull, StoreUnavailable):
                    break
            if chance.random() < 0.7:
                filler.unlink()
                for _ in range(chance.randrange(10)):
                    try:
                        kept.append(await keep_in_the_file(server, store, 20))
                    except (DiskFull, StoreUnavailable):
                        await asyncio.sleep(0.05)
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random())
            if not writes(server):  # the write that failed was acknowledged
                del kept[-1:]
            if chance.random() < 0.5:
                os.kill(server.pid, signal.SIGKILL)
                wait_until(lambda: server.wait() is not None)
            filler.unlink(missing_ok=True)
    shutil.rmtree(folder / "damaged", ignore_errors=True)


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
async def test_fills_kills_and_restarts_lose_no_turn_that_was_acknowledged(disk: Path, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"{seed=}")
    chance, kept = random.Random(seed), []
    for _ in range(rounds):
        await _round(disk / "data", disk, chance, kept)
