"""Append-only files that a server can't read back: their sound parts are kept, the rest is cut.

A server whose disk was full may leave a hole of zeros between two commands: it cut a short write off again, but went on
writing behind the place where that had ended. A crash may leave half a command at the end. Both are cut. Bytes behind
any other damage may be made up by a client, so they are dropped: never search for a next command behind bytes that
can't be read, as texts of users are among them.

A transaction is kept whole or not at all. Files are changed by replacing them, after a link to each was put aside.
"""

import mmap
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

FILES = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
DAMAGED = "damaged"
"""The folder where the files are put aside as they were, in a numbered folder for each repair."""

COPIES = 3

MAX_NUMBER_BYTES = 20
"""The most bytes of a length or a count, as digits."""

COPY_BYTES = 1 << 20

_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


class CutPart(NamedTuple):
    """A part that was cut from a file: its first byte, its length in bytes, and why."""

    file: str
    at: int
    bytes: int
    why: str


class FileRepair(NamedTuple):
    """The parts that a repair has cut, and the folder with the files as they were."""

    cuts: tuple[CutPart, ...]
    copy: Path


class _TornError(Exception):
    """The file ends within a command or a transaction."""


class _UnreadableError(Exception):
    """No command begins here."""


def repair(folder: Path) -> FileRepair | None:
    """Make the append-only files of the server's `folder` readable; None where nothing in them has to be cut.

    Takes as much room again as each file that is changed. Raises OSError.
    """
    files = folder / FILES
    kept: dict[Path, list[tuple[int, int]]] = {}
    cuts: list[CutPart] = []
    dropping = False
    for path in _written_after_the_base(files):
        ranges, found, readable = _sound(path, dropping)
        dropping = dropping or not readable
        if found:
            kept[path] = ranges
            cuts += found
    if not cuts:
        return None
    copy = _next_copy(folder / DAMAGED)
    shutil.copy2(files / MANIFEST, copy)
    for path, ranges in kept.items():
        os.link(path, copy / path.name)
        _replace(path, ranges)
    _sync_folder(files)
    return FileRepair(tuple(cuts), copy)


def _written_after_the_base(files: Path) -> list[Path]:
    """The files with commands, in the order in which they were written; none where there is no manifest."""
    try:
        lines = (files / MANIFEST).read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    found: list[Path] = []
    for line in lines:
        words = line.split()
        parts = dict(zip(words[::2], words[1::2], strict=False))
        if parts.get("type") == "i" and (files / parts["file"]).is_file():
            found.append(files / parts["file"])
    return found


def _sound(path: Path, dropping: bool) -> tuple[list[tuple[int, int]], list[CutPart], bool]:
    """The ranges of a file to keep, the cuts, and whether the files behind it can be kept too.

    With `dropping` all of it is cut.
    """
    ranges: list[tuple[int, int]] = []
    cuts: list[CutPart] = []
    with _mapping(path) as data:
        size, at = len(data), 0
        if dropping and size:
            return [], [CutPart(path.name, 0, size, "it follows what can't be read")], False
        begin = 0
        while at < size:
            try:
                at = _unit_end(data, at)
            except _TornError:
                cuts.append(CutPart(path.name, at, size - at, "half a change, at the end of the file"))
                break
            except _UnreadableError:
                hole = _zeros_end(data, at)
                readable = hole > at and (hole == size or _readable(data, hole))
                why = "zeros, where the disk was full" if readable else "it can't be read"
                cuts.append(CutPart(path.name, at, (hole if readable else size) - at, why))
                ranges.append((begin, at))
                if not readable:
                    return ranges, cuts, False
                begin = at = hole
        ranges.append((begin, at))
    return ranges, cuts, True


@contextmanager
def _mapping(path: Path) -> Generator[mmap.mmap | bytes]:
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _readable(data: mmap.mmap | bytes, at: int) -> bool:
    """Whether a change begins there; it may be cut off by the end of the file."""
    try:
        _unit_end(data, at)
    except _TornError:
        return True
    except _UnreadableError:
        return False
    return True


def _unit_end(data: mmap.mmap | bytes, at: int) -> int:
    """The end of the command or the transaction that begins at `at`. Raises _TornError, _UnreadableError."""
    end = _command_end(data, at)
    if end - at != len(_MULTI) or data[at:end].upper() != _MULTI:
        return end
    while True:
        start, end = end, _command_end(data, end)
        if end - start == len(_EXEC) and data[start:end].upper() == _EXEC:
            return end


def _command_end(data: mmap.mmap | bytes, at: int) -> int:
    """The end of the command that begins at `at`: `*COUNT`, and COUNT times `$LENGTH` and so many bytes."""
    count, at = _number(data, at, b"*")
    if count < 1:
        raise _UnreadableError
    for _ in range(count):
        length, at = _number(data, at, b"$")
        at += length + 2
        if at > len(data):
            raise _TornError
        if data[at - 2 : at] != b"\r\n":
            raise _UnreadableError
    return at


def _number(data: mmap.mmap | bytes, at: int, mark: bytes) -> tuple[int, int]:
    """The number of the line `MARK NUMBER` at `at`, and where the next line begins."""
    end = data.find(b"\r\n", at, at + MAX_NUMBER_BYTES)
    line = data[at : end if end >= 0 else at + MAX_NUMBER_BYTES]
    if end < 0 and len(data) - at < MAX_NUMBER_BYTES and (line[:1] == mark or not line):
        digits = line[1:].removesuffix(b"\r")
        if not digits or digits.isdigit():
            raise _TornError
    if end < 0 or line[:1] != mark or not line[1:].isdigit():
        raise _UnreadableError
    return int(line[1:]), end + 2


def _zeros_end(data: mmap.mmap | bytes, at: int) -> int:
    while at < len(data):
        piece = data[at : at + COPY_BYTES]
        left = piece.lstrip(b"\0")
        at += len(piece) - len(left)
        if left:
            break
    return at


def _next_copy(damaged: Path) -> Path:
    """A new folder for the files as they were; the oldest ones go."""
    damaged.mkdir(mode=0o700, exist_ok=True)
    there = sorted((path for path in damaged.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for old in there[: -(COPIES - 1)]:
        shutil.rmtree(old)
    copy = damaged / str(int(there[-1].name) + 1 if there else 1)
    copy.mkdir(mode=0o700)
    return copy


def _replace(path: Path, ranges: list[tuple[int, int]]) -> None:
    """Replace the file `path`, at once, by one that has only these ranges of it."""
    made = path.with_name(path.name + ".repaired")
    try:
        with path.open("rb") as old, made.open("wb") as new:
            for begin, end in ranges:
                old.seek(begin)
                while begin < end:
                    begin += new.write(old.read(min(COPY_BYTES, end - begin)))
            new.flush()
            os.fsync(new.fileno())
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
