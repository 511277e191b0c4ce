"""Containers: sessions of a sandbox by ids that their tenant knows, with a record of each.

The store has the records, for all processes that share it; the variables and files are in the sandbox alone. A
container expires when nobody used it for its time, or when its session was lost or gave its place up. It can still be
told from one that never existed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from itertools import count
from typing import Any, NamedTuple

import msgspec

from service.backoff import Backoff
from service.errors import ApiError, InvalidRequest, brief, unavailable
from service.features.python.shapes import MAX_MINUTES, MEMORY, MemoryLimit
from service.features.sandbox.port import (
    FOLDER,
    Full,
    NoFile,
    Sandbox,
    SessionFile,
    SessionGone,
    SessionLimits,
    Unusable,
    begin,
)
from service.logs import event
from service.responses.attachments import AttachedFile
from store.codec import decode_record
from store.errors import NewerFormat, StoreError, StoreFull
from store.history.records import RecordKind, TenantRecords

CONTAINERS = RecordKind("containers", "cntr_", b"contnr".hex(), most=128, kept_ms=86_400_000)

FRESH_SECONDS = 10.0
"""The time by which a record's last use may be too early."""

MAX_UPLOADS = 256
"""The most files of a container that are known to be its user's."""

START_SECONDS = 5.0
"""The time for which the start of a service waits for a sandbox elsewhere."""

_FILE_DIGEST_BYTES = 24
_MARK_BYTES = 8

VERSION = 1
"""The version of a record that this release writes, and the newest that it reads; each new member takes the next."""

logger = logging.getLogger(__name__)


class ContainerRecord(msgspec.Struct, frozen=True):
    """The record of a container. `place` is the sandbox that has its session, `uploads` are marks of the files that its
    user has written. `lost`: the session is gone. `deleted`: its user deleted it. Then nobody is shown it, and a
    response that still runs code in it learns that it is gone.
    """

    name: str
    created_at: int
    active_at: float
    minutes: int
    place: str
    memory_limit: MemoryLimit | None = None
    uploads: tuple[bytes, ...] = ()
    lost: bool = False
    deleted: bool = False
    version: int = VERSION


class OpenedContainer(NamedTuple):
    """A container that has a session: its id, its record, and its folder as its code sees it."""

    id: str
    record: ContainerRecord
    folder: str


class KeptFile(NamedTuple):
    """A file of a container, by the id that it always has, and whether its user wrote it."""

    id: str
    file: SessionFile
    uploaded: bool


def _decode(record: bytes) -> ContainerRecord:
    """The record in some bytes. Raises NewerFormat."""
    return decode_record(record, ContainerRecord, VERSION)


def file_id(container: str, path: str) -> str:
    """The id of a container's file."""
    return "cfile_" + blake2b(f"{container}{path}".encode(), digest_size=_FILE_DIGEST_BYTES).hexdigest()


class Containers:
    """The containers of all tenants."""

    def __init__(
        self,
        records: TenantRecords,
        sandbox: Sandbox,
        place: str,
        clock: Callable[[], float],
        again: Backoff | None = None,
    ) -> None:
        """`place` is how records name the sandbox. With `again`, one that can't be used at the start is tried later."""
        self.sandbox = sandbox
        self.usable = False
        """Whether the sandbox has proved that its sessions are confined."""
        self._records = records
        self._place = place
        self._clock = clock
        self._again = again
        self._opening: set[asyncio.Task[str]] = set()

    async def start(self) -> None:
        """Get the sandbox ready. Where it can't be used no code is run, and the log says why."""
        try:
            async with asyncio.timeout(None if self._again is None else START_SECONDS):
                await self.sandbox.start()
        except (Unusable, TimeoutError) as error:
            reason = str(error) or f"it doesn't answer within {START_SECONDS:g} s"
            event(logger, logging.ERROR, "no sandbox", reason=reason, remedy="harmonium doctor shows the reason")
        else:
            self.usable = True

    async def start_later(self) -> None:
        """Try a sandbox again that can't be used yet, and may start later than this service, until it can be used."""
        failures = 0
        while self._again is not None and not self.usable:
            failures += 1
            await asyncio.sleep(self._again.seconds(failures))
            with suppress(Unusable):
                await self.sandbox.start()
                self.usable = True
                event(logger, logging.INFO, "the sandbox can be used now")

    def new_id(self, tenant: str) -> str:
        """An id for a container."""
        return self._records.new_id(tenant)

    async def find(self, tenant: str, id: str) -> ContainerRecord | None:
        """The record of a container, also of a deleted one; None where there is none. Raises StoreError."""
        found = await self._records.get(tenant, id)
        return None if found is None else _decode(found)

    async def record(self, tenant: str, id: str) -> ContainerRecord:
        """The record of a container that wasn't deleted, expired or not. Raises ApiError 404, StoreError."""
        record = await self.find(tenant, id)
        if record is None or record.deleted:
            raise not_found(id)
        return record

    def lives(self, record: ContainerRecord) -> bool:
        """Whether a container has not expired."""
        idle, ended = self._clock() - record.active_at, record.lost or record.deleted
        return not ended and record.place == self._place and idle < record.minutes * 60

    async def found(self, tenant: str, id: str) -> ContainerRecord:
        """The record of a container that has not expired. Raises ApiError 404 and 400, StoreError."""
        record = await self.record(tenant, id)
        if not self.lives(record):
            raise expiry_refusal()
        return record

    async def all(self, tenant: str, *, deleted: bool = False) -> list[tuple[str, ContainerRecord]]:
        """A tenant's containers, the newest first, also `deleted` ones that are still known. Raises StoreError."""
        found = await self._all(tenant)
        return sorted(
            (each for each in found.items() if deleted or not each[1].deleted),
            key=lambda each: (each[1].created_at, each[0]),
            reverse=True,
        )

    async def _all(self, tenant: str) -> dict[str, ContainerRecord]:
        """A tenant's records by their ids, but for those of a later release."""
        found = dict[str, ContainerRecord]()
        for id, record in (await self._records.all(tenant)).items():
            with suppress(NewerFormat):
                found[id] = _decode(record)
        return found

    async def open(
        self,
        tenant: str,
        id: str,
        *,
        name: str = "",
        minutes: int = MAX_MINUTES,
        memory_limit: MemoryLimit | None = None,
        files: Sequence[AttachedFile] = (),
    ) -> OpenedContainer:
        """Open a new container with this id, and with copies of files. Raises Full, Unusable, SessionGone, StoreError,
        and ApiError for a file that can't be copied.

        Cancelled, it is opened all the same: an unknown session would keep its place until it was idle.
        """
        now = self._clock()
        record = ContainerRecord(name, int(now), now, minutes, self._place, memory_limit)
        opening = asyncio.create_task(self._open(tenant, id, record, files))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return OpenedContainer(id, record, await asyncio.shield(opening))

    async def _open(self, tenant: str, id: str, record: ContainerRecord, files: Sequence[AttachedFile]) -> str:
        """Open a session and record it once it has all files: else code would run without some, if this process dies.
        Returns its folder as its code sees it.
        """
        limits = SessionLimits(idle_seconds=record.minutes * 60)
        if record.memory_limit is not None:
            limits = msgspec.structs.replace(limits, memory_bytes=MEMORY[record.memory_limit])
        opened = await self.sandbox.open(id, tenant, limits, lasting=bool(record.name))
        try:
            for each in opened.instead_of:
                await self.lose(*each)
            uploads = dict[str, bytes]()
            for file in files:
                name = next(each for each in _names(file.name) if each not in uploads)
                uploads[name] = _mark((await self._write(tenant, id, name, file.content)).path)
            record = msgspec.structs.replace(record, active_at=self._clock(), uploads=tuple(uploads.values()))
            await self._record(tenant, id, msgspec.msgpack.encode(record))
        except (ApiError, Full, StoreError):
            await self._close(id)
            raise
        return opened.folder

    async def _record(self, tenant: str, id: str, encoded: bytes) -> None:
        try:
            await self._records.keep(tenant, id, encoded)
        except StoreFull:
            ended = [each for each, known in (await self._all(tenant)).items() if not self.lives(known)]
            if not ended:
                raise Full(f"a tenant may have {CONTAINERS.most} containers") from None
            for each in ended:
                await self._records.drop(tenant, each)
            await self._records.keep(tenant, id, encoded)

    async def touch(self, tenant: str, id: str, *, ran: bool = False) -> ContainerRecord | None:
        """Note that a container is used, unless it has expired; or that code `ran` in it, perhaps for longer than it
        may be idle. Returns its record, also of a deleted one; None where there is none. Raises StoreError.
        """
        now = self._clock()
        return await self._change(tenant, id, lambda known: {"active_at": now} if ran or self.lives(known) else {})

    async def use(self, tenant: str, id: str) -> ContainerRecord:
        """The record of a container that has not expired; notes its use. Raises ApiError 404 and 400, StoreError."""
        touched = await self.touch(tenant, id)
        return touched if touched is not None and self.lives(touched) else await self.found(tenant, id)

    def is_fresh(self, record: ContainerRecord) -> bool:
        """Whether a living container was used just now, by its record, so that its use needs no other note."""
        return self._clock() - record.active_at < FRESH_SECONDS

    async def lose(self, tenant: str, id: str) -> None:
        """Note that the session of a container is gone, unless a later release has its record. Raises StoreError."""
        with suppress(NewerFormat):
            await self._change(tenant, id, lambda _: {"lost": True})

    async def delete(self, tenant: str, id: str) -> None:
        """End a container. Raises ApiError 404, StoreError."""
        await self.record(tenant, id)
        await self._change(tenant, id, lambda _: {"deleted": True, "name": "", "uploads": ()})
        await self._close(id)

    async def _close(self, id: str) -> None:
        try:
            await self.sandbox.close(id)
        except (SessionGone, Unusable) as error:
            event(logger, logging.INFO, "a container's session could not be closed", reason=str(error))

    async def _change(
        self, tenant: str, id: str, change: Callable[[ContainerRecord], dict[str, Any]]
    ) -> ContainerRecord | None:
        """Change members of a record, also while others do. Returns the new record; None where there is none."""

        def edit(before: bytes) -> tuple[bytes, bool]:
            known = _decode(before)
            record = known if known.deleted else msgspec.structs.replace(known, **change(known))
            return msgspec.msgpack.encode(record), False

        record = await self._records.change(tenant, id, edit)
        return None if record is None else _decode(record)

    # --- files ---

    async def files(self, tenant: str, id: str) -> list[KeptFile]:
        """The files of a container, by path. Raises ApiError 404, 400 and 503, StoreError."""
        record = await self.use(tenant, id)
        async with self._refusing(tenant, id):
            files = await self.sandbox.files(id)
        return [KeptFile(file_id(id, file.path), file, _mark(file.path) in record.uploads) for file in files]

    async def file(self, tenant: str, id: str, wanted: str) -> KeptFile:
        """A file of a container. Raises as `files` does."""
        for each in await self.files(tenant, id):
            if each.id == wanted:
                return each
        raise _file_not_found(wanted)

    async def write(self, tenant: str, id: str, name: str, content: AsyncIterator[bytes]) -> KeptFile:
        """Write a user's file into a container. Raises ApiError 404, 400 and 503, StoreError."""
        await self.use(tenant, id)
        file = await self._write(tenant, id, name, content)
        now, mark = self._clock(), _mark(file.path)
        await self._change(
            tenant, id, lambda known: {"active_at": now, "uploads": (*_without(known, mark), mark)[-MAX_UPLOADS:]}
        )
        return KeptFile(file_id(id, file.path), file, uploaded=True)

    async def _write(self, tenant: str, id: str, name: str, content: AsyncIterator[bytes]) -> SessionFile:
        async with self._refusing(tenant, id):
            return await self.sandbox.write(id, f"{FOLDER}/{name}", content)

    async def read(self, tenant: str, id: str, wanted: str) -> AsyncIterator[bytes]:
        """The content of a container's file. Raises as `files` does, before the first piece."""
        path = (await self.file(tenant, id, wanted)).file.path
        async with self._refusing(tenant, id, wanted):
            return await begin(self.sandbox.read(id, path))

    async def remove(self, tenant: str, id: str, wanted: str) -> None:
        """Delete a file of a container. Raises as `files` does."""
        path = (await self.file(tenant, id, wanted)).file.path
        async with self._refusing(tenant, id, wanted):
            await self.sandbox.remove(id, path)
        await self._change(tenant, id, lambda known: {"uploads": _without(known, _mark(path))})

    @asynccontextmanager
    async def _refusing(self, tenant: str, id: str, wanted: str = "") -> AsyncGenerator[None]:
        """Raise the errors for the client, made of the sandbox's; a `wanted` file may be gone since it was found."""
        try:
            yield
        except SessionGone as error:
            await self.lose(tenant, id)
            raise expiry_refusal() from error
        except Unusable as error:
            raise unavailable("The sandbox is not available at the moment.") from error
        except (Full, NoFile) as error:
            if wanted:
                raise _file_not_found(wanted) from error
            raise InvalidRequest(f"The file can't be stored: {error}.", code="invalid_value", param="file") from error


def _names(name: str) -> Iterator[str]:
    """The names that a copy of a file may have: its own, and those for one whose name another one has."""
    yield name
    yield from (f"{number}-{name}" for number in count(2))


def _mark(path: str) -> bytes:
    """The mark of a file's path, which the record keeps."""
    return blake2b(path.encode(), digest_size=_MARK_BYTES).digest()


def _without(record: ContainerRecord, mark: bytes) -> tuple[bytes, ...]:
    return tuple(each for each in record.uploads if each != mark)


def not_found(id: str) -> ApiError:
    """The refusal, 404: this tenant has no such container."""
    told = f"Container with id '{brief(id)}' not found."
    return ApiError(404, told, code="container_not_found", param="container_id")


def _file_not_found(id: str) -> ApiError:
    told = f"Container file with id '{brief(id)}' not found."
    return ApiError(404, told, code="container_file_not_found", param="file_id")


def expiry_refusal() -> InvalidRequest:
    """The refusal of an expired container: 400, in OpenAI's words."""
    return InvalidRequest("Container is expired.", code="container_expired", param="container")
