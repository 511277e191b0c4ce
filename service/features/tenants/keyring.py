"""The key ring: the holders of the registry's keys, remembered so that a request needs no look-up.

A look-up is believed for MEMORY_SECONDS at most. It is forgotten at once when the registry's channel says that its
project or its key was changed, or when messages may have been missed. While the store is away it holds for as long;
then nobody enters.

A value whose checksum is wrong costs a stranger's own time only. A value with the right checksum that is no key is
looked up each time, but no more than LOOKED_UP_AT_ONCE at a time, so that strangers don't take the store from others.
Known keys aren't among them, and all who present one key at the same time share one look-up.

Requests wait for their turn by their project's weight. So the weight is known without a look-up, and a project that was
looked up before is looked up again as soon as it changes, whether or not it sends another request.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from cachetools import FIFOCache

from service.errors import unavailable
from service.features.tenants.directory import ADMIN
from service.features.tenants.records import (
    ADMIN_PREFIX,
    Account,
    Key,
    Project,
    decode,
    digest_of,
    is_whole,
    key_id,
    place_of,
)
from service.loans import renew_for_ever
from store.errors import StoreUnavailable
from store.listening import Listening
from store.registry import Registry

T = TypeVar("T")

MEMORY_SECONDS = 30.0
MOST_REMEMBERED = 20_000
"""How many keys, and how many projects, a process remembers, 1 KB each; the one that was looked up first goes."""

LOOKED_UP_AT_ONCE = 64
LISTEN_SECONDS = 5.0
"""How long a wait for messages is, before the connection is looked at."""

RETRY_SECONDS = 1.0
"""How long it waits to listen again where that failed."""

USED_SECONDS = 60.0
"""How often it is noted which keys were used."""


class Holder(NamedTuple):
    """The holder of a key: the key, and its project; None for an administrator."""

    key: Key
    project: Project | None


class _Remembered(NamedTuple, Generic[T]):
    """A look-up by name: the record, and until when it is believed; 0 once it was forgotten."""

    found: T
    until: float


class KeyRing:
    """The keys in the registry, as far as they were presented lately."""

    def __init__(
        self, registry: Registry, listening: Listening, clock: Callable[[], float], now: Callable[[], float] = monotonic
    ) -> None:
        """`clock` gives the seconds since 1970, `now` those by which it forgets."""
        self._registry = registry
        self._listening = listening
        self._clock, self._now = clock, now
        self._remembered: FIFOCache[str, _Remembered[Holder]] = FIFOCache(MOST_REMEMBERED)
        self._projects: FIFOCache[str, _Remembered[Project | None]] = FIFOCache(MOST_REMEMBERED)
        self._outdated: asyncio.Queue[str] = asyncio.Queue(MOST_REMEMBERED)
        """Projects that have changed and are to be looked up."""
        self._strangers = asyncio.Semaphore(LOOKED_UP_AT_ONCE)
        self._looking: dict[str, asyncio.Task[Holder | None]] = {}
        """The look-ups under way, by the key's digest."""
        self._used: dict[str, int] = {}
        self.listens = False
        """Whether it hears at once of changes."""
        self._forgotten = 0
        """How often something was forgotten: an earlier read may be outdated."""

    @property
    def remembered(self) -> int:
        """How many keys are remembered."""
        return len(self._remembered)

    async def holder(self, value: bytes) -> Holder | None:
        """The holder of a key, None for a key that nobody has, that has expired or whose project is archived.

        Raises ApiError 503 where strangers' keys are looked up in great number, StoreUnavailable.
        """
        if not is_whole(value):
            return None
        digest = digest_of(value)
        known = self._remembered.get(digest)
        holder = known.found if known is not None and self._now() < known.until else await self._look_up(digest)
        if holder is None or not holder.key.valid(self._clock()):
            return None
        if value.startswith(ADMIN_PREFIX.encode()) != (holder.project is None):
            return None
        self._used[holder.key.place] = int(self._clock())
        return holder

    async def project(self, id: str) -> Project | None:
        """The registry's record of a project, whoever asks for it; None where there is none. A record that was known is
        believed for longer where the store is away. Raises StoreUnavailable where none was.
        """
        known = self._projects.get(id)
        if known is not None and self._now() < known.until:
            return known.found
        forgotten = self._forgotten
        try:
            (record,) = await self._registry.read(place_of(Project, id))
        except StoreUnavailable:
            if known is None or not known.until:
                raise
            return known.found
        found = decode(record, Project)
        if forgotten == self._forgotten:
            self._projects[id] = self._remembering(found)
        return found

    def weight(self, id: str) -> float | None:
        """The weight of a project as it was last looked up; None for one that has none, or was never looked up."""
        known = self._projects.get(id)
        return known.found.weight if known and known.found else None

    async def run(self) -> None:
        """Listen for changes, and note the use of keys, until it is cancelled."""
        await asyncio.gather(self._listen(), self._renew_for_ever(), renew_for_ever(self.note_used, USED_SECONDS))

    async def _look_up(self, digest: str) -> Holder | None:
        """The holder of the key with this digest. Raises as `holder`."""
        looking = self._looking.get(digest)
        if looking is None:
            looking = self._looking[digest] = asyncio.create_task(self._read(digest))
            looking.add_done_callback(partial(self._looked_up, digest))
        return await asyncio.shield(looking)

    def _looked_up(self, digest: str, looking: asyncio.Task[Holder | None]) -> None:
        if self._looking.get(digest) is looking:
            del self._looking[digest]
        if not looking.cancelled():
            looking.exception()  # whoever still waits for it is told

    async def _read(self, digest: str) -> Holder | None:
        known = digest in self._remembered
        if not known and self._strangers.locked():
            raise unavailable("Too many keys are looked up. Try again in a moment.")
        async with nullcontext() if known else self._strangers:
            forgotten = self._forgotten
            holder = await self._holder_in_registry(digest)
        if holder is None:
            self._remembered.pop(digest, None)
        elif forgotten == self._forgotten:
            self._remembered[digest] = self._remembering(holder)
            if holder.project is not None:
                self._projects[holder.project.id] = self._remembering(holder.project)
        return holder

    def _remembering(self, found: T) -> _Remembered[T]:
        return _Remembered(found, self._now() + MEMORY_SECONDS)

    async def _holder_in_registry(self, digest: str) -> Holder | None:
        """The holder by the registry; None where its account is gone or its project archived."""
        (record,) = await self._registry.read(place_of(Key, key_id(digest)))
        key = decode(record, Key)
        if key is None or key.digest != digest:
            return None
        if not key.project:
            return Holder(key, None)
        records = await self._registry.read(place_of(Project, key.project), place_of(Account, key.account))
        project, account = decode(records[0], Project), decode(records[1], Account)
        if project is None or project.archived_at is not None or account is None:
            return None
        return Holder(key, project)

    def forget(self, project: str | None = None) -> None:
        """Forget the look-ups of a project, or of administrators; of None all."""
        self._forgotten += 1
        self._looking.clear()  # an earlier look-up is no answer for a later request
        for digest, holder in list(self._remembered.items()):
            if project in (None, holder.found.key.project or ADMIN):
                del self._remembered[digest]
        for id, each in list(self._projects.items()):
            if project in (None, id):
                self._projects[id] = each._replace(until=0.0)

    def _hear(self, project: str) -> None:
        """Forget a project that has changed; it is looked up again if it was before."""
        self.forget(project)
        if project in self._projects and not self._outdated.full():
            self._outdated.put_nowait(project)

    async def _renew_for_ever(self) -> None:
        """Look up changed projects, beside the listener: nothing else is believed for longer meanwhile."""
        while True:
            project = await self._outdated.get()
            with suppress(StoreUnavailable):  # it is looked up with its next request
                while (known := self._projects.get(project)) and not known.until:  # it may be forgotten meanwhile
                    await self.project(project)

    async def _listen(self) -> None:
        while True:
            with suppress(StoreUnavailable):  # memories expire by themselves
                async with self._listening.channel(self._registry.news) as listener:
                    self.forget()
                    self.listens = True
                    while True:
                        messages = await listener.messages(LISTEN_SECONDS)
                        if messages is None:
                            self.forget()
                        for message in messages or ():
                            self._hear(message.decode())
            self.listens = False
            await asyncio.sleep(RETRY_SECONDS)

    async def note_used(self) -> None:
        """Note in the registry when keys were used since the last time. Raises StoreUnavailable."""
        used, self._used = self._used, {}
        if used:
            await self._registry.used(used)
