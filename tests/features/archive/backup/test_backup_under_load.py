"""Backups while others write, and backups and restores that are killed: what comes back is whole and sound."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup import turns
from store.backup.reading import Node, ShardReader
from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.store.backups import Moves, back_up, bring_back, contents_of
from tests.support.store.sample import TENANT, grow
from tests.support.store.servers import server
from tests.support.store.verdict import checked
from tests.support.store.writer import Writer
from tests.support.waiting import until

WRITERS = 8
DEADLINE_SECONDS = 60.0


async def test_what_eight_writers_leave_alone_is_in_the_backup_and_all_of_it_is_sound(
    history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    quiet = [await grow(history, *map(str, range(6))) for _ in range(40)]
    long = await grow(history, *map(str, range(300)))  # read leaf by leaf, while it is used
    tips = [*long[::7], *(id for ids in quiet[:20] for id in ids)]
    writers = [Writer(history, seed, list(tips)) for seed in range(WRITERS)]
    stop = asyncio.Event()
    running = [asyncio.create_task(writer.run(stop)) for writer in writers]
    end = await moves.save(turns_per_second=600)
    stop.set()
    await asyncio.gather(*running)
    deleted = set[str]().union(*(writer.deleted for writer in writers))
    assert end.broken == 0
    restored = await moves.restore()
    assert restored.whole
    assert restored.restored == end.turns >= 20 * 6
    for id in {*long, *(id for ids in quiet for id in ids)} - deleted:
        assert await second.get(TENANT, id) == await history.get(TENANT, id)


class Overtaken(ShardReader):
    """A reader before whose reads of payloads something happens each time, as long as there is something left."""

    changes: Sequence[Callable[[], Awaitable[None]]] = ()

    async def _blobs(self, tenant: str, some: Sequence[Node]) -> list[tuple[bytes | None, bytes | None]]:
        if self.changes:
            change, *self.changes = self.changes
            await change()
        return await super()._blobs(tenant, some)


async def test_a_turn_that_changes_again_and_again_while_it_is_read_is_not_taken_for_damaged(
    history: ConversationHistoryStore,
) -> None:
    root, tip = await grow(history, "root", "tip")
    (shard,) = history.keyspace.all_shards()

    async def erase() -> None:
        with suppress(NotFound):  # as it was deleted before
            await history.forget(TENANT, root, erase=True)

    reader = Overtaken(history.server, shard)
    reader.changes = [partial(history.forget, TENANT, root), erase]
    (path,) = [path async for path in reader.paths(f"{TENANT}/{history.keyspace.digits(root)}")]
    first, second = [turn async for _, turn in reader.turns(TENANT, path)]
    assert first is not None
    assert second is not None
    assert [first.id, second.id] == [root, tip]
    assert first.erased is not None
    assert reader.broken == 0


@pytest.mark.parametrize("wait_ms", [0, turns.WAIT_MS])
async def test_a_deleted_turn_whose_continuation_went_amid_a_backup_waits_for_it_until_a_sweep(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    redis: Redis,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    wait_ms: int,
) -> None:
    root, _ = await grow(history, "root", "tip")
    await history.forget(TENANT, root)
    alone = await turns.take_out(TENANT, await turns.look_up(history, TENANT, root))
    monkeypatch.setattr(turns, "WAIT_MS", wait_ms)
    assert await turns.store_row(second, TENANT, [alone]) == [b"ok"]
    await second.sweep()
    assert await redis.zcard(f"{prefix}-2:{{00}}:tombstones") == int(wait_ms > 0)


async def test_a_restore_beside_eight_writers_and_sweeps_is_whole(
    history: ConversationHistoryStore, second: ConversationHistoryStore, moves: Moves
) -> None:
    kept: list[str] = []
    for _ in range(60):
        ids = await grow(history, *map(str, range(6)))
        kept += await grow(history, "fork", "tip", parent=ids[2])
        for id in ids[:3]:
            await history.forget(TENANT, id, erase=True)  # tombstones, which a sweep takes where nothing continues them
    end = await moves.save()
    writers = [Writer(second, seed, await grow(second, "theirs")) for seed in range(WRITERS)]
    stop = asyncio.Event()
    running = [asyncio.create_task(writer.run(stop)) for writer in writers]
    running.append(asyncio.create_task(_sweep(second, stop)))
    restored = await moves.restore(turns_per_second=600)
    stop.set()
    await asyncio.gather(*running)
    assert restored.whole
    assert restored.restored == end.turns == 60 * 8
    for id in kept:
        assert await second.lineage(TENANT, id) == await history.lineage(TENANT, id)


async def _sweep(store: ConversationHistoryStore, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await store.sweep()


async def test_a_server_that_dies_amid_a_backup_is_waited_for(tmp_path: Path) -> None:
    file, partial = tmp_path / "backup", tmp_path / "backup.partial"
    with server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as process:
        url = f"redis://{process.address}"
        store = ConversationHistoryStore(connect(url), timeout_seconds=15.0)
        await many(store, 60)
        await store.close()
        saving = asyncio.create_task(back_up(url, "harmonium", file, turns_per_second=300))
        await until(lambda: _size(partial) > 400_000, DEADLINE_SECONDS)
        process.kill()
        process.restart()
        end = await saving
    # none twice, by another process's cursor
    assert (end.turns, end.trees, end.broken, end.unsettled) == (300, 60, 0, 0)
    assert (await contents_of(file)).turns == 300


@contextmanager
def command(*arguments: str | Path, url: str, prefix: str, archive: str = "none") -> Iterator[subprocess.Popen[bytes]]:
    """`harmonium` with these arguments, in a process of its own."""
    settings = {"REDIS_URL": url, "REDIS_PREFIX": prefix, "ARCHIVE_URL": archive}
    environment = {**os.environ, **{f"HARMONIUM_{name}": value for name, value in settings.items()}}
    line = [sys.executable, "-m", "service", *map(str, arguments)]
    with subprocess.Popen(
        line, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


async def many(store: ConversationHistoryStore, conversations: int) -> None:
    """Conversations with texts that don't compress, so that a backup of them grows."""
    for number in range(conversations):
        chance = random.Random(number)
        await grow(store, *(chance.randbytes(4_000).hex() for _ in range(5)))


async def test_a_backup_that_is_killed_goes_on_where_it_was(
    history: ConversationHistoryStore, server_url: str, prefix: str, moves: Moves
) -> None:
    await many(history, 60)
    partial = moves.file.with_name(moves.file.name + ".partial")
    asked = ("backup", moves.file, "--turns-per-second", "50")
    with command(*asked, url=server_url, prefix=prefix) as process:
        await until(lambda: _size(partial) > 400_000, DEADLINE_SECONDS)
        kill(process)
    left = _size(partial)
    with command(*asked, "--resume", url=server_url, prefix=prefix) as process:
        await until(lambda: _size(partial) > left + 400_000, DEADLINE_SECONDS)
        kill(process)
    assert not _size(moves.file)
    resumed = await moves.save(resume=True)
    whole = await moves.save(beside=".2")
    assert (resumed.content, resumed.turns, resumed.trees) == (whole.content, 300, 60)
    assert (await contents_of(moves.file)).turns == 300


async def test_a_restore_that_is_killed_is_run_again(
    history: ConversationHistoryStore,
    second: ConversationHistoryStore,
    server_url: str,
    prefix: str,
    redis: Redis,
    moves: Moves,
) -> None:
    await many(history, 60)
    for member in await redis.zrange(f"{prefix}:{{00}}:trees", 0, 9):
        await history.forget(TENANT, f"resp_{member.decode().split('/')[1]}", erase=True)
    end = await moves.save()
    own = f"{prefix}-2"
    for so_far in (50, 150):
        with command("restore", moves.file, "--turns-per-second", "300", url=server_url, prefix=own) as process:
            await until(lambda: _responses(redis, own), DEADLINE_SECONDS, wanted=so_far.__lt__)
            kill(process)
        assert (await checked(server_url, own)).found == 0
    restored = await bring_back(server_url, own, moves.file)
    assert restored.whole
    assert restored.kept >= 150
    assert restored.kept + restored.restored == 300
    assert (await back_up(server_url, own, moves.file.with_suffix(".2"))).content == end.content


async def test_a_restore_into_an_archive_that_is_killed_is_run_again(
    history: ConversationHistoryStore, server_url: str, prefix: str, tmp_path: Path, moves: Moves
) -> None:
    await many(history, 60)
    end = await moves.save()
    folder, own = tmp_path / "archive", f"{prefix}-2"
    archive = open_archive(url := f"sqlite://{folder}", tmp_path)
    for so_far in (10, 30):
        asked = ("restore", moves.file, "--turns-per-second", "300")
        with command(*asked, url=server_url, prefix=own, archive=url) as process:
            await until(lambda: _values(archive), DEADLINE_SECONDS, wanted=so_far.__lt__)
            kill(process)
    restored = await bring_back(server_url, own, moves.file, archive=archive)
    assert (restored.whole, restored.kept + restored.restored) == (True, 300)
    assert restored.kept >= 150
    again = await back_up(server_url, own, moves.file.with_suffix(".2"), archive=open_archive(url, tmp_path))
    assert again.content == end.content


async def _values(archive: Archive) -> int:
    return len(await archive.list("v1/00/"))


async def _responses(redis: Redis, prefix: str) -> int:
    return int(await redis.hget(f"{prefix}:{{00}}:usage", "responses") or 0)


def _size(path: Path) -> int:
    """The bytes of a file, and of what SQLite has beside it."""
    beside = (path, path.with_name(path.name + "-wal"))
    return sum(each.stat().st_size for each in beside if each.exists())
