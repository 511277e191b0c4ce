"""The guard of the embedded server's disk: no turn is taken that the disk may have no room for, and no hole stays.

A server that meets a full disk refuses everything, deletions too, and may leave a hole in its file that no start gets
past (append_only.py). So storing stops while there is still room: the guard gives the server a memory limit of one
byte, which refuses the scripts that add turns, and no other (lua/evict.lua). Other programs may take that room as well:
so a file keeps some of it, and is deleted when a write failed, so that conversations can be deleted.

It alone has the files rewritten: a rewrite needs room for all that is stored, and without that it would fill the disk.

`tick` is one look; a thread calls it. Never wait here without a limit, and never evict a turn for the disk.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

LOOK_SECONDS = 0.25
"""The pause between two looks: far less than the reserve can be written meanwhile."""

CLOSED = 1
"""The memory limit of a server that takes no turns; lua/evict.lua knows it, and evicts nothing for it."""

RESERVE_BYTES = 256 << 20
"""Below so much free space, or an eighth of the disk if less, no new turn is stored. Running responses may end."""

RESERVE_SHARE = 8

REOPEN_PERCENT = 125
"""How much of the reserve has to be free before turns are stored again, so that it doesn't change at each look."""

FILE_PERCENT = 6
"""How much of the reserve is a file, so that no other program can take it: 15 MiB, for ten thousand deletions."""

REWRITE_BYTES = 64 << 20
REWRITE_PERCENT = 50
"""The files are rewritten when their growth since the last rewrite passes both: so many bytes, and this percentage of
their size after it. So a start reads half as much again as is stored, and 64 MiB."""

LOG_BYTES = 1 << 16

_FAILED_WRITE = b"writing to the AOF file"
"""Part of the server's log line when the disk took only a part of a write, or nothing of it."""

logger = logging.getLogger(__name__)

Ask = Callable[..., Any]
"""Sends a command to the server. Raises redis-py's errors."""

Free = Callable[[], int]
"""How many bytes are free on the disk. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """How many bytes of the disk are kept free."""

    bytes: int

    @property
    def reopen_bytes(self) -> int:
        """The free bytes from which on turns are stored again."""
        return self.bytes * REOPEN_PERCENT // 100

    @property
    def file_bytes(self) -> int:
        return self.bytes * FILE_PERCENT // 100


def reserve_of(folder: Path) -> Reserve:
    """The reserve on the disk that has `folder`. Raises OSError."""
    disk = os.statvfs(folder)
    return Reserve(min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_SHARE))


def free_bytes(folder: Path) -> int:
    """How many bytes this user may still write to the disk that has `folder`. Raises OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class ServerGuard:
    """Looks after one running server, again and again, until it is stopped."""

    def __init__(self, ask: Ask, free: Free, reserve: Reserve, *, file: Path, log: Path) -> None:
        """A guard that is not started yet; `file` is the path of the reserve's file, `log` that of the server's log."""
        self._ask, self._free, self._reserve = ask, free, reserve
        self._file, self._log = file, log
        self._read = log.stat().st_size if log.exists() else 0
        self._closed = False
        self._hole = False
        self._rewrites: int | None = None
        self._without_room = False
        self._silent = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._look()
        self._thread = threading.Thread(target=self._run, name="guard of the disk", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def tick(self) -> None:
        """Look once; a server or a disk that doesn't answer is logged once, and looked at again the next time."""
        try:
            self._look()
        except (RedisError, OSError) as error:
            if not self._silent and not self._stopped.is_set():
                self._tell(logging.WARNING, "the embedded server's disk can't be watched", reason=str(error))
            self._silent = True
        else:
            self._silent = False

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self.tick()

    def _look(self) -> None:
        free, state = self._free(), self._ask("INFO")
        if self._write_failed() or str(state["aof_last_write_status"]) != "ok":
            self._file.unlink(missing_ok=True)  # the server tries again each second
            if not self._hole:
                self._tell(logging.ERROR, "the disk is full: a write failed, and the files will be rewritten")
            self._hole, self._rewrites = True, None
        self._admit(free)
        self._keep_file(free)
        self._note_rewritten(state)
        self._rewrite(free, state)

    def _write_failed(self) -> bool:
        """Whether the server has logged a failed write since the last look."""
        with self._log.open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(max(self._read - len(_FAILED_WRITE), size - LOG_BYTES, 0))
            new = log.read(LOG_BYTES + len(_FAILED_WRITE)) if size > self._read else b""
        self._read = size
        return _FAILED_WRITE in new

    def _admit(self, free: int) -> None:
        """Stop storing where the reserve is reached, and start again where there is room."""
        if not self._closed and free < self._reserve.bytes:
            self._ask("CONFIG SET", "maxmemory", CLOSED)
            self._closed = True
            self._tell(
                logging.ERROR,
                "the disk is nearly full: no response is stored; delete some, or make room",
                free_bytes=free,
                reserve_bytes=self._reserve.bytes,
            )
        elif self._closed and free >= self._reserve.reopen_bytes:
            self._ask("CONFIG SET", "maxmemory", 0)
            self._closed = False
            self._tell(logging.WARNING, "the disk has room: responses are stored again", free_bytes=free)

    def _keep_file(self, free: int) -> None:
        if self._reserve.file_bytes and not self._file.exists() and free >= self._reserve.reopen_bytes:
            with self._file.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self._reserve.file_bytes)

    def _note_rewritten(self, state: Mapping[str, Any]) -> None:
        """Note that the hole is gone, once a rewrite that was begun after it has succeeded."""
        if self._rewrites is not None and not _rewriting(state):
            if int(state["aof_rewrites"]) > self._rewrites and state["aof_last_bgrewrite_status"] == "ok":
                if self._hole:
                    self._tell(logging.WARNING, "the files were rewritten: nothing of the failed write is left")
                self._hole = False
            self._rewrites = None

    def _rewrite(self, free: int, state: Mapping[str, Any]) -> None:
        if not self._due(state) or _rewriting(state):
            return
        # The most that a rewrite takes. Where it is needed to get out of trouble, it may use the reserve.
        needed = int(state["used_memory_dataset"])
        spare = self._reserve.file_bytes if self._hole or self._closed else self._reserve.bytes
        if free - needed <= spare:
            if not self._without_room:
                self._tell(
                    logging.ERROR if self._hole else logging.WARNING,
                    "no room on the disk to rewrite the embedded server's files",
                    free_bytes=free,
                    needed_bytes=needed + spare,
                )
            self._without_room = True
            return
        self._without_room = False
        self._ask("BGREWRITEAOF")
        self._rewrites = int(state["aof_rewrites"])

    def _due(self, state: Mapping[str, Any]) -> bool:
        written, base = int(state["aof_current_size"]), int(state["aof_base_size"])
        if self._hole:
            return str(state["aof_last_write_status"]) == "ok"
        if self._closed:
            return written - int(state["used_memory_dataset"]) > self._reserve.bytes // 4
        return written - base > max(REWRITE_BYTES, base * REWRITE_PERCENT // 100)

    def _tell(self, level: int, message: str, **fields: int | str) -> None:
        logger.log(level, "%s", message, extra={"fields": fields})


def _rewriting(state: Mapping[str, Any]) -> bool:
    return bool(int(state["aof_rewrite_in_progress"])) or bool(int(state["aof_rewrite_scheduled"]))
