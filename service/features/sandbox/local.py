"""The adapter that forks sessions beside this process: their places, their folders, and their end.

All folders lie below one that this process has alone while it lives; the next start deletes the folders of a process
that died. As root each session has a user of its own. Else all have this process's user, and Landlock and the
filter keep them apart. Sandboxes of one machine never have the same users, whatever their folders are: each takes a
range of them for as long as its process lives, by a lock that the kernel lets go of.
"""

import asyncio
import fcntl
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service import logs
from service.features.sandbox import folder as folders
from service.features.sandbox.forks import Zygote
from service.features.sandbox.inside.mounts import LINK
from service.features.sandbox.inside.zygote import tasks_of
from service.features.sandbox.port import (
    Cell,
    Full,
    OpenedSession,
    Sandbox,
    SessionFile,
    SessionGone,
    SessionLimits,
    Unusable,
)
from service.features.sandbox.proof import TENANT, prove
from service.features.sandbox.session import ForkedSession, looking

CHUNK_BYTES = 1 << 18
LOOKS = 20
"""The looks for idle sessions within the time for which one may be idle."""

LOOK_SECONDS = 0.1
"""The pause between two looks at the files of a cell, where they are not too dear."""

LOOK_SHARE = 0.2
"""The most of a processor that all looks at cells take together: where they take longer, there are fewer of them."""

SHARED = "matplotlib"
"""The folder beside those of the tenants that have sessions."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

logger = logging.getLogger(__name__)

RANGE = 512
"""The most sessions that a sandbox has."""

FIRST_UIDS = (64_000, 64_512, *range(65_536, 65_536 + 62 * RANGE, RANGE))
"""Where ranges begin: numbers that no system gives to people. A container often has no others than the first two, which
systemd may give to a service for which it makes up a user; those from 65,536 on are nobody's.
"""

LOCKS = (Path("/run"), Path(tempfile.gettempdir()))
"""Where the locks lie: in the first that can be written."""


def take_users(folders: Sequence[Path] = LOCKS) -> tuple[int, int] | None:
    """The first of the users of a sandbox's sessions, and the lock that holds them while it is open; None where all
    sessions have this process's user. Raises Unusable where there are none.
    """
    if os.getuid():
        return None
    folder = next((each for each in folders if os.access(each, os.W_OK)), folders[-1])
    for first in FIRST_UIDS:
        path = folder / f"harmonium-sandbox-{first}.lock"
        try:
            lock = _lock(path)
        except OSError as error:
            raise Unusable(f"sessions can't have users of their own: {path}: {error.strerror}") from error
        # processes of a sandbox that was killed die a moment later than it, and count among those of their user
        if lock >= 0 and not tasks_of(range(first, first + RANGE)):
            return first, lock
        if lock >= 0:
            os.close(lock)
    raise Unusable(f"{len(FIRST_UIDS)} sandboxes of this machine use all users for sessions")


def _lock(path: Path) -> int:
    """A file, locked; -1 where another process has it. Raises OSError."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return -1
    return lock


@dataclass(frozen=True)
class SessionPlaces:
    """How many sessions there may be, in all and of one tenant, and for how long one may be idle, in seconds."""

    sessions: int = 32
    tenant_sessions: int = 8
    idle_seconds: float = 1200


class LocalSandbox(Sandbox):
    """Sessions as processes of this machine."""

    def __init__(self, places: SessionPlaces, most: SessionLimits, base: Path | None = None) -> None:
        """`base` is where folders lie; without it, in the system's folder for temporary files."""
        if places.sessions > RANGE:
            raise ValueError(f"there can't be {places.sessions} sessions, only {RANGE}")
        self._places, self._most = places, most
        self._base = base or Path(tempfile.gettempdir(), f"harmonium-sandbox-{os.getuid()}")
        self._sessions: dict[str, ForkedSession] = {}
        self._opening: dict[str, asyncio.Task[list[tuple[str, str]]]] = {}
        self._free = list(range(places.sessions))
        self._tenants = Counter[str]()
        """How many places each tenant has."""
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()
        self._placing = asyncio.Lock()
        """One place is made free at a time: else each of those that wait would end another's session."""
        self._run: Path | None = None
        self._first_uid: int | None = None
        self._locks: list[int] = []
        self._burials: set[asyncio.Task[None]] = set()
        self._idle: asyncio.Task[None] | None = None
        self._looks: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """As the port has it: the sessions of this machine are tried before anybody gets one."""
        try:
            if users := await asyncio.to_thread(take_users):
                self._first_uid, lock = users
                self._locks.append(lock)
            self._run = await asyncio.to_thread(self._take_folder)
            await prove(self, self.session, lambda: self._zygote.pid if self._zygote else 0)
        except BaseException:
            await self.aclose()
            raise
        self._idle = asyncio.create_task(self._end_idle())

    async def open(self, session: str, tenant: str, limits: SessionLimits, *, lasting: bool = False) -> OpenedSession:
        if not NAME.fullmatch(session):
            raise ValueError(f"no name of a session: {session[:80]!r}")
        if (known := self._sessions.get(session)) and not known.alive:
            await known.gone.wait()
        instead_of: list[tuple[str, str]] = []
        if session not in self._sessions:
            if session not in self._opening:
                opening = asyncio.create_task(self._begin(session, tenant, limits.within(self._most), lasting))
                self._opening[session] = opening
                opening.add_done_callback(lambda _: self._opening.pop(session))
            instead_of = await asyncio.shield(self._opening[session])
        found = self.session(session)
        if found.tenant != tenant:
            raise SessionGone(f"there is no session {session}")
        folder = LINK if self._zygote and self._zygote.linked else found.folder
        return OpenedSession(str(folder), tuple(instead_of))

    async def run(self, session: str, call: str, code: str) -> Cell:
        found = self.session(session)
        if not self._looks or self._looks.done():
            self._looks = asyncio.create_task(self._look())
        return await found.run(call, code)

    async def stop(self, session: str, call: str) -> None:
        self.session(session).stop(call)

    async def close(self, session: str) -> None:
        if opening := self._opening.get(session):
            with suppress(Full, Unusable):
                await asyncio.shield(opening)
        if found := self._sessions.get(session):
            found.kill("it was closed")
            await found.gone.wait()

    async def files(self, session: str) -> list[SessionFile]:
        found = self.session(session)
        return await asyncio.to_thread(folders.files_below, found.folder, found.limits.files)

    async def read(self, session: str, path: str) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread(folders.open_file, self.session(session).folder, path)
        try:
            while part := await asyncio.to_thread(os.read, file, CHUNK_BYTES):
                yield part
        finally:
            os.close(file)

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> SessionFile:
        found = self.session(session)
        found.lasting = True
        made = len(folders.parts_of(path))
        outside_bytes, there = await looking(
            lambda: (found.outside_bytes, found.content())
        )  # others may write meanwhile
        begun = outside_bytes - there.disk_bytes - made * folders.ENTRY_BYTES
        if there.entries + made > found.limits.files:
            raise Full(f"the session has {there.entries:,} files already")
        writing = await asyncio.to_thread(folders.FileWriting, found.folder, path, found.uid)
        try:
            async for part in content:
                found.outside_bytes += len(part)
                if found.outside_bytes - begun > found.limits.disk_bytes:
                    raise Full(f"the session's files may have {found.limits.disk_bytes:,} bytes, and this one has more")
                await asyncio.to_thread(writing.write, part)
            seen = await asyncio.to_thread(writing.finish)
        finally:
            await asyncio.to_thread(writing.close)
        found.known[writing.path] = seen
        return folders.file_of(writing.path, seen)

    async def remove(self, session: str, path: str) -> None:
        found = self.session(session)
        await asyncio.to_thread(folders.remove_file, found.folder, path)
        found.known.pop("/".join(folders.parts_of(path)), None)

    async def aclose(self) -> None:
        for task in self._opening.values():
            task.cancel()
        if self._zygote:
            await self._zygote.end()
        await asyncio.gather(*self._opening.values(), *self._burials, return_exceptions=True)
        for task in (self._idle, self._looks):
            if task:
                task.cancel()
        if self._run:
            run, self._run = self._run, None
            await asyncio.to_thread(folders.remove_tree, run)
        while self._locks:
            os.close(self._locks.pop())

    def session(self, name: str) -> ForkedSession:
        """The session of a name, which is used now. Raises SessionGone."""
        session = self._sessions.get(name)
        if session is None or not session.alive:
            raise SessionGone(f"there is no session {name[:80]}")
        session.touch()
        return session

    async def _begin(self, name: str, tenant: str, limits: SessionLimits, lasting: bool) -> list[tuple[str, str]]:
        """Take a place, and fork. Returns the sessions that gave theirs up, with tenants. Raises Full, Unusable."""
        instead_of: list[tuple[str, str]] = []
        async with self._placing:
            while reason := self._lacking(tenant):
                if not (known := self._dispensable(tenant)):
                    raise Full(reason)
                session = self._sessions[known]
                session.kill("another session replaced it")
                instead_of.append((session.tenant, known))
                await session.gone.wait()
            place = self._free.pop(0)
            self._tenants[tenant] += 1
        home = None
        try:
            async with self._starting:
                if not self._run:
                    raise Unusable("the sandbox is closed")
                if not self._zygote or not self._zygote.alive:
                    self._zygote = await Zygote.start(self._run)
                zygote = self._zygote
            uid = None if self._first_uid is None else self._first_uid + place
            home = await asyncio.to_thread(self._make_home, uid)
            session = await zygote.fork(tenant, limits, home, uid, self._places.sessions)
        except BaseException as error:
            if home:
                await asyncio.shield(asyncio.to_thread(folders.remove_tree, home))
            self._give_back(place, tenant)
            if isinstance(error, OSError):
                raise Unusable(f"a session can't begin: {error.strerror}") from error
            raise
        session.lasting = lasting
        self._sessions[name] = session
        burial = asyncio.create_task(self._bury(name, session, place))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
        return instead_of

    def _lacking(self, tenant: str) -> str:
        """The reason why a tenant can't have a place now; empty where it can."""
        if not self._free:
            return f"all {self._places.sessions} sessions of Python are busy"
        if self._tenants[tenant] >= self._places.tenant_sessions:
            return f"a tenant may have {self._places.tenant_sessions} sessions of Python at once"
        return ""

    def _dispensable(self, tenant: str) -> str:
        """The session that gives its place up to one of a tenant's, if any may: one of its own where the tenant has its
        share, else one of a tenant that has more, of the one that has most, or else one of its own.
        """
        own = self._tenants[tenant]
        order: dict[str, tuple[int, bool, bool, float]] = {}
        for name, session in self._sessions.items():
            more = self._tenants[session.tenant] - own
            if session.idle and (session.tenant == tenant or (more > 0 and own < self._places.tenant_sessions)):
                order[name] = -more, session.tenant != tenant, session.lasting, session.used_at
        return min(order, key=order.__getitem__, default="")

    async def _bury(self, name: str, session: ForkedSession, place: int) -> None:
        """When a session's process has ended, delete its folders, and give its place to others."""
        try:
            await session.wait_for_end()
            await asyncio.to_thread(folders.remove_tree, session.home)
            level = logging.DEBUG if session.tenant == TENANT else logging.INFO
            logs.event(logger, level, "sandbox session ended", tenant=session.tenant, reason=session.why)
        except OSError as error:
            logs.event(logger, logging.ERROR, "a sandbox folder was not deleted", reason=type(error).__name__)
        finally:
            del self._sessions[name]
            self._give_back(place, session.tenant)
            session.gone.set()

    def _give_back(self, place: int, tenant: str) -> None:
        self._free.append(place)
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]

    async def _look(self) -> None:
        """Look at the sessions that run cells in turn, as long as there are any."""
        while running := [session for session in self._sessions.values() if session.busy]:
            for session in running:
                took = await session.look()
                await asyncio.sleep(max(LOOK_SECONDS / len(running), took / LOOK_SHARE - took))

    async def _end_idle(self) -> None:
        """Close sessions that nobody has used for too long, for ever."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._places.idle_seconds / LOOKS)
            for session in self._sessions.values():
                most = min(session.limits.idle_seconds, self._places.idle_seconds)
                if not session.busy and now() - session.used_at > most:
                    session.kill("it was idle for too long")

    def _take_folder(self) -> Path:
        """A folder below the base that is ours while this process lives; those that are nobody's are deleted. Raises
        Unusable.
        """
        try:
            self._base.mkdir(mode=0o711, parents=True, exist_ok=True)
            if self._base.lstat().st_uid != os.getuid() or self._base.is_symlink():
                raise OSError("it is another user's")
            self._base.chmod(0o711)  # sessions have users of their own
            with (self._base / "lock").open("w") as starting:
                fcntl.flock(starting, fcntl.LOCK_EX)
                for left in self._base.iterdir():
                    if left.is_dir() and left.name != SHARED and (lock := _lock(left / "lock")) >= 0:
                        os.close(lock)
                        folders.remove_tree(left)
                run = Path(tempfile.mkdtemp(dir=self._base, prefix="run-"))
                run.chmod(0o711)
                self._locks.append(_lock(run / "lock"))
            return run
        except OSError as error:
            raise Unusable(f"{self._base} can't have the folders of sessions: {error.strerror or error}") from error

    def _make_home(self, uid: int | None) -> Path:
        """The folders of a session."""
        assert self._run
        home = Path(tempfile.mkdtemp(dir=self._run, prefix="s-"))
        home.chmod(0o711)
        for name in ("data", "tmp"):
            (home / name).mkdir(0o700)
            if uid is not None:
                os.chown(home / name, uid, uid)
        return home
