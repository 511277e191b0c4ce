"""A session's folder from outside: its content, how much it takes, and its files one by one.

The reader may be root, and a session may change its folder at any moment. So no name is followed that could lead out: a
path is walked part by part, and none may be a link. Everything blocks: call it in a thread.
"""

import ctypes
import os
import secrets
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from service.features.sandbox.port import FOLDER, Full, NoFile, SessionFile

MAX_DEPTH = 32
"""How deep folders may lie in each other: a deeper tree counts as too many files."""

MAX_PATH_CHARS = 1024
MAX_NAME_BYTES = 255
BLOCK = 512
"""The bytes of a block, as stat counts them."""

ENTRY_BYTES = 1 << 12
"""The most of a disk that a new folder takes, and the last part of a file beyond what it has."""

MAX_MAPPINGS = 4096
"""Parts of a session's memory, which are the lines of its map: reading each takes time, and a session can have 65,530.
Python with NumPy, pandas and Matplotlib has some 700, and 64 threads some 200 more.
"""

LONG_LINE_BYTES = 256
"""A line that is longer, by the name of a mapped file, counts as several."""

_LIBC = ctypes.CDLL(None)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SeenFile(NamedTuple):
    """A file as it was: its size, when it was written, and which one it is."""

    bytes: int
    modified_ns: int
    inode: int


class Content(NamedTuple):
    """The result of a look: files by path, the disk that they take, and how many files and folders there are. `over`
    names anything that there was too much of to count.
    """

    files: dict[str, SeenFile]
    disk_bytes: int
    entries: int
    over: str


def look(folder: Path, most_files: int) -> Content:
    """All files below a folder, until there are more than `most_files`."""
    files: dict[str, SeenFile] = {}
    used, count, over = 0, 0, ""
    waiting = [("", 0)]
    while waiting and not over:
        below, depth = waiting.pop()
        for name, found in _entries(folder, below):
            count += 1
            used += found.st_blocks * BLOCK
            path = f"{below}{name}"
            if stat.S_ISDIR(found.st_mode):
                waiting.append((f"{path}/", depth + 1))
            elif stat.S_ISREG(found.st_mode) and len(path) <= MAX_PATH_CHARS and _is_text(path):
                files[path] = SeenFile(found.st_size, found.st_mtime_ns, found.st_ino)
            if count > most_files or depth >= MAX_DEPTH:
                over = f"more than {most_files:,} files, or folders too deep in each other"
                break
    return Content(files, used, count, over)


def _entries(folder: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with _opening(folder, [part for part in below.split("/") if part]) as place, os.scandir(place) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(entry.name, 0o700, dir_fd=place)
                yield entry.name, found
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # it went meanwhile, and maybe another has its place; when a cell has ended nothing moves any more


def stopped(pid: int) -> bool:
    """Whether no thread of a process that was told to stop runs any more."""
    return all(_state(f"/proc/{pid}/task/{thread}/stat") in b"tTZX" for thread in _list(f"/proc/{pid}/task"))


def _state(status: str) -> bytes:
    """A letter for what a thread does: T where it is stopped, Z and X where it has ended."""
    try:
        return Path(status).read_bytes().rpartition(b") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return b"X"


def nameless(pid: int, uid: int | None, home: Path, most_of_one: int) -> Content:
    """The files of a process that have no name any more and are open, or only mapped into its memory.

    The size of a mapped file is unknown: each counts as the largest file that there may be. `uid` is the user of the
    process, where it has one of its own, and `home` has all that it may write.
    """
    with _as_user(uid):
        files, mapped, lines = _files_of(pid, b"/%b/" % os.fsencode(home.name))
    over = f"more than {MAX_MAPPINGS:,} parts of memory" if lines > MAX_MAPPINGS else ""
    return Content({}, sum(files.values()) * BLOCK + len(mapped - files.keys()) * most_of_one, 0, over)


@contextmanager
def _as_user(uid: int | None) -> Generator[None]:
    """Look at a process as its own user, in this thread alone: in a container root may not look at those of others."""
    if uid is None:
        yield
        return
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
    try:
        yield
    finally:
        _LIBC.setfsuid(os.geteuid())
        _LIBC.setfsgid(os.getegid())


def _files_of(pid: int, name: bytes) -> tuple[dict[int, int], set[int], int]:
    """The open files of a process, and as `_mapped_files`, as any of its threads shows them: they share both."""
    for thread in _list(task := f"/proc/{pid}/task"):
        try:
            mapped, lines = _mapped_files(f"{task}/{thread}/maps", name)
            if lines:
                return _open_files(f"{task}/{thread}/fd"), mapped, lines
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
        except PermissionError:
            if _state(f"{task}/{thread}/stat") not in b"ZX":
                raise
    return {}, set(), 0


def _mapped_files(path: str, name: bytes) -> tuple[set[int], int]:
    """The inodes of mapped files with `name` in their paths that are deleted, and how many lines a map of memory has:
    more than MAX_MAPPINGS are not read.
    """
    found: set[int] = set()
    lines = 0
    with open(path, "rb") as maps:
        while lines <= MAX_MAPPINGS and (line := maps.readline()):
            lines += 1 + len(line) // LONG_LINE_BYTES
            if name in line and line.endswith(b" (deleted)\n"):
                found.add(int(line.split(maxsplit=5)[4]))
    return found, lines


def _open_files(folder: str) -> dict[int, int]:
    """The open files of a thread by number of their inode, and how many blocks each has that has no name."""
    found: dict[int, int] = {}
    for number in _list(folder):
        try:
            seen = os.stat(f"{folder}/{number}")
        except FileNotFoundError:
            continue
        found[seen.st_ino] = seen.st_blocks if stat.S_ISREG(seen.st_mode) and not seen.st_nlink else 0
    return found


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended


def files_below(folder: Path, most_files: int) -> list[SessionFile]:
    """The files below a folder, by path."""
    return [file_of(*each) for each in sorted(look(folder, most_files).files.items())]


def file_of(path: str, seen: SeenFile) -> SessionFile:
    """The port's form of a file."""
    return SessionFile(f"{FOLDER}/{path}", seen.bytes, seen.modified_ns / 1e9)


def open_file(folder: Path, path: str) -> int:
    """A file, to be read. Raises NoFile."""
    *parents, name = parts_of(path)
    try:
        with _opening(folder, parents) as place:
            try:
                opened = os.open(name, _READ, dir_fd=place)
            except PermissionError:  # made with a mode that keeps its own user out
                os.chmod(name, 0o600, dir_fd=place)
                opened = os.open(name, _READ, dir_fd=place)
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                os.close(opened)
                raise NoFile(f"{path[:80]!r} is no file")
            return opened
    except OSError as error:
        raise NoFile(f"there is no file {path[:80]!r}") from error


class FileWriting:
    """A file that is written beside its name, and gets it when it is whole."""

    def __init__(self, folder: Path, path: str, uid: int | None) -> None:
        """Raises NoFile where there can't be a file at `path`."""
        self.path = "/".join(parts_of(path))
        *parents, self._name = parts_of(path)
        self._partial = f".partial-{secrets.token_hex(8)}"
        try:
            with _opening(folder, parents, uid=uid, making=True) as place:
                self._file = os.open(self._partial, _NEW, 0o644, dir_fd=place)
                self._place = os.dup(place)
        except OSError as error:
            raise NoFile(f"there can't be a file {path[:80]!r}: {error.strerror}") from error
        if uid is not None:
            os.fchown(self._file, uid, uid)

    def write(self, content: bytes) -> None:
        """Append to it. Raises Full where the disk has no room."""
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            raise Full(f"the file can't be written: {error.strerror}") from error

    def finish(self) -> SeenFile:
        """Give it its name. Raises NoFile where a folder has it."""
        try:
            os.rename(self._partial, self._name, src_dir_fd=self._place, dst_dir_fd=self._place)
        except OSError as error:
            raise NoFile(f"there can't be a file {self._name[:80]!r}: {error.strerror}") from error
        found = os.fstat(self._file)
        return SeenFile(found.st_size, found.st_mtime_ns, found.st_ino)

    def close(self) -> None:
        """Delete it if it isn't whole."""
        try:
            with suppress(FileNotFoundError):  # it has its name
                os.unlink(self._partial, dir_fd=self._place)
        finally:
            os.close(self._file)
            os.close(self._place)


def remove_file(folder: Path, path: str) -> None:
    """Delete a file. Raises NoFile."""
    *parents, name = parts_of(path)
    try:
        with _opening(folder, parents) as place:
            os.unlink(name, dir_fd=place)
    except OSError as error:
        raise NoFile(f"there is no file {path[:80]!r}") from error


def parts_of(path: str) -> list[str]:
    """The names on the way to a file, from a path below FOLDER or without it. Raises NoFile."""
    path = path.removeprefix(f"{FOLDER}/")
    parts = path.split("/")
    named = all(0 < len(os.fsencode(part)) <= MAX_NAME_BYTES and part not in (".", "..") for part in parts)
    whole = len(path) <= MAX_PATH_CHARS and len(parts) <= MAX_DEPTH and "\0" not in path and _is_text(path)
    if not named or not whole:
        raise NoFile(f"{path[:80]!r} is no path of a file in {FOLDER}")
    return parts


def remove_tree(folder: Path) -> None:
    """Delete a folder of a session that has ended, however deep it is. Raises OSError where it can't."""
    if not folder.exists():
        return
    token, made = secrets.token_hex(8), 0
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            with os.scandir(entry.path) as inner:
                for each in inner:
                    if each.is_dir(follow_symlinks=False):
                        os.chmod(each.path, 0o700)
                        made += 1
                        os.rename(each.path, folder / f"{token}-{made}")
                    else:
                        os.unlink(each.path)
            os.rmdir(entry.path)
    folder.rmdir()


@contextmanager
def _opening(folder: Path, parts: list[str], *, uid: int | None = None, making: bool = False) -> Generator[int]:
    """A folder below `folder`, part by part; none may be a link."""
    place = os.open(folder, _FOLDER)
    try:
        for part in parts:
            try:
                inner = os.open(part, _FOLDER, dir_fd=place)
            except FileNotFoundError:
                if not making:
                    raise
                os.mkdir(part, 0o755, dir_fd=place)
                inner = os.open(part, _FOLDER, dir_fd=place)
                if uid is not None:
                    os.fchown(inner, uid, uid)
            os.close(place)
            place = inner
        yield place
    finally:
        os.close(place)


def _is_text(path: str) -> bool:
    """Whether UTF-8 can encode it: Python has parts of characters in other names."""
    return path.encode("utf-8", "replace").decode() == path
