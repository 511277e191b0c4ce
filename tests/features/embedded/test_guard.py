"""The guard, look by look, over a server and a disk that are made up."""

import logging
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Away

from store.guard import REWRITE_BYTES, Reserve, ServerGuard

RESERVE = Reserve(1000)
SOUND = {
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "aof_rewrite_in_progress": 0,
    "aof_rewrite_scheduled": 0,
    "aof_rewrites": 0,
    "aof_base_size": 0,
    "aof_current_size": 0,
    "used_memory_dataset": 0,
}


class World:
    """A server and its disk, as the guard sees them, and what it asked for."""

    def __init__(self, folder: Path) -> None:
        self.free = 10_000
        self.state: dict[str, Any] = dict(SOUND)
        self.asked: list[tuple[object, ...]] = []
        self.away = False
        self.file, self.log = folder / "reserve", folder / "valkey.log"
        self.log.write_bytes(b"Error writing to the AOF file: of an earlier run\n")
        self.guard = ServerGuard(self.answer, lambda: self.free, RESERVE, file=self.file, log=self.log)

    def answer(self, *command: object) -> Any:
        if self.away:
            raise Away("nobody is there")
        if command == ("INFO",):
            return self.state
        self.asked.append(command)
        return None

    def look(self) -> list[tuple[object, ...]]:
        """What one more look asks for."""
        self.asked.clear()
        self.guard.tick()
        return list(self.asked)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_storing_stops_at_the_reserve_and_starts_again_a_quarter_above_it(world: World) -> None:
    found = []
    for free in (1000, 999, 500, 1000, 1249, 1250, 1000):
        world.free = free
        found += [(free, *command[1:]) for command in world.look()]
    assert found == [(999, "maxmemory", 1), (1250, "maxmemory", 0)]


def test_the_file_of_the_reserve_is_there_until_a_write_fails(world: World) -> None:
    world.look()
    assert world.file.stat().st_size == RESERVE.file_bytes == 60
    with world.log.open("ab") as log:
        log.write(b"Short write while writing to the AOF file: (nwritten=1, expected=2)\n")
    world.free = 0
    world.look()
    assert not world.file.exists()
    world.look()
    assert not world.file.exists()
    world.free = 10_000
    world.look()
    assert world.file.exists()


def test_a_write_that_failed_has_the_files_rewritten_as_soon_as_the_server_writes_again(world: World) -> None:
    assert world.look() == []
    world.state["aof_last_write_status"] = "err"
    assert world.look() == []
    world.state["aof_last_write_status"] = "ok"
    assert world.look() == [("BGREWRITEAOF",)]
    world.state |= {"aof_rewrite_in_progress": 1, "aof_rewrites": 1}
    assert world.look() == []
    world.state |= {"aof_rewrite_in_progress": 0, "aof_last_bgrewrite_status": "err"}
    assert world.look() == [("BGREWRITEAOF",)]
    world.state |= {"aof_rewrites": 2, "aof_last_bgrewrite_status": "ok"}
    assert world.look() == []


def test_a_write_that_failed_between_two_looks_is_found_in_the_log(world: World) -> None:
    with world.log.open("ab") as log:
        log.write(b"Error writing to the AOF file: No space left on device\n")
    assert world.look() == [("BGREWRITEAOF",)]


def test_the_files_are_rewritten_when_half_as_much_again_has_come(world: World) -> None:
    base = 4 * REWRITE_BYTES
    world.free = 100 * REWRITE_BYTES
    world.state |= {"aof_base_size": base, "aof_current_size": base + base // 2, "used_memory_dataset": base}
    assert world.look() == []
    world.state["aof_current_size"] += 1
    assert world.look() == [("BGREWRITEAOF",)]


def test_a_rewrite_without_room_is_not_begun_and_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world.state |= {"aof_current_size": REWRITE_BYTES + 1, "used_memory_dataset": world.free - RESERVE.bytes}
    assert world.look() == world.look() == []
    assert caplog.messages == ["no room on the disk to rewrite the embedded server's files"]
    world.free += 1
    assert world.look() == [("BGREWRITEAOF",)]
