"""The port of a sandbox: sessions of Python, each with cells that share variables, and a folder of files.

Two adapters: `local`, which forks sessions beside this process, and `remote`, which speaks to `harmonium sandbox`. The
same tests run against both.
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

FOLDER = "/mnt/data"
"""The port's name of a session's folder. `open` says what the session's code calls it."""

Ended = Literal["ok", "raised", "timeout", "lost", "stopped"]
"""How a cell ended: at its last line; with an exception; interrupted when its time was up; with its session, whose
variables and files are gone; interrupted because nobody wants it any more.
"""


class SessionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a session. A sandbox has limits of its own, and gives the less of both."""

    memory_bytes: int = 1 << 30
    """Beside what every session begins with."""
    disk_bytes: int = 256 << 20
    files: int = 1000
    """Files and folders together."""
    seconds: float = 60
    """Of one cell."""
    cpu_seconds: int = 600
    """Of processor time, of all cells together."""
    output_chars: int = 64_000
    """Of one cell; the middle of more is left out."""
    idle_seconds: float = 1200
    """For how long it may be idle before it is closed."""

    def within(self, most: "SessionLimits") -> "SessionLimits":
        """The less of both."""
        return SessionLimits(**{name: min(getattr(self, name), getattr(most, name)) for name in self.__struct_fields__})


class Image(msgspec.Struct, frozen=True):
    """A figure that was open when its cell ended."""

    data: bytes
    format: Literal["png"] = "png"


class Cell(msgspec.Struct, frozen=True):
    """The result of a cell."""

    ended: Ended
    logs: str = ""
    """The printed text, the value of the last expression, and of an exception the traceback from the cell on; of a lost
    session, the reason.
    """
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    """The files that it wrote, as paths below FOLDER, of many those that were written last; files that the sandbox's
    user wrote meanwhile are among them.
    """


class SessionFile(msgspec.Struct, frozen=True):
    """A file of a session: its path below FOLDER, its size, and when it was last written (seconds since 1970)."""

    path: str
    bytes: int
    modified: float


class OpenedSession(msgspec.Struct, frozen=True):
    """A session that is there: the path by which its code finds its folder, and the sessions that gave their places up
    for it, each as its tenant and its name.
    """

    folder: str
    instead_of: tuple[tuple[str, str], ...] = ()


class SandboxError(Exception):
    """A refusal of a sandbox. The message says why, without anything of a session's code."""


class Full(SandboxError):
    """No place can be had: of the sandbox, the tenant's share, the session's disk, or its queue of cells."""


class SessionGone(SandboxError):
    """There is no such session: it was closed, it was idle for too long, it gave its place up, it died, or the sandbox
    began anew.
    """


class NoFile(SandboxError):
    """The session has no such file, or the path is none."""


class Unusable(SandboxError):
    """There is no sandbox: it can't be reached, or its promises don't hold on this machine."""


class Sandbox(Protocol):
    """Sessions, by names that their owner makes. Everything may raise Unusable, and all but `open` Gone."""

    async def start(self) -> None:
        """Get ready, and prove that sessions are confined. Raises Unusable with the reasons."""
        ...

    async def open(self, session: str, tenant: str, limits: SessionLimits, *, lasting: bool = False) -> OpenedSession:
        """Have a session of this name, a new one unless it is there. Where there is no place for it, an idle one gives
        its own up: one of this tenant where it has its share; else one of a tenant that has more, of the one that has
        most; or else one of this tenant. Of those it is the one that was idle longest, `lasting` ones and those with
        files from outside last.

        Raises Full. A name is 1 to 64 of the characters A-Z a-z 0-9 _ -; another tenant's is Gone.
        """
        ...

    async def run(self, session: str, call: str, code: str) -> Cell:
        """Run a cell, after those that came before. Its threads rest when it has ended, until the next one runs.

        Where the session ran or runs a call of this name, nothing runs again: its Cell is handed out, without images
        if there were later calls. Cancelled, it does what `stop` does. Raises Full where too many cells wait.
        """
        ...

    async def stop(self, session: str, call: str) -> None:
        """Interrupt the cell of a call, if it has not ended; one that doesn't let itself be interrupted is killed
        with its session. It doesn't wait for the end. A call that is asked for only afterwards never runs.
        """
        ...

    async def close(self, session: str) -> None:
        """End the session and delete its folder, if it is there."""
        ...

    async def files(self, session: str) -> list[SessionFile]:
        """Its files, by path."""
        ...

    def read(self, session: str, path: str) -> AsyncIterator[bytes]:
        """The content of a file. Raises NoFile."""
        ...

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> SessionFile:
        """Make or replace a file. Raises Full where it doesn't fit, and NoFile for a path that can't be one."""
        ...

    async def remove(self, session: str, path: str) -> None:
        """Delete a file. Raises NoFile."""
        ...

    async def aclose(self) -> None:
        """End all sessions of one's own, and let go of connections."""
        ...


async def begin(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same parts. The errors of the first one are raised here, and not amid an answer."""
    first = await anext(parts, b"")

    async def all_parts() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return all_parts()
