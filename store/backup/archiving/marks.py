"""Marks: an archive's facts about a tenant as a whole: all of it was erased at a time, or none of it may be deleted.

    v1/00/gone/t.TENANT    all that the tenant had until `at` was erased
    v1/00/hold/t.TENANT    nothing of the tenant is deleted for its age, nor as a whole

They are beside the head of the first shard (heads.py), which shows an older copy of them. A mark is JSON, so that a
person can read it. The mark of an erased tenant stays for ever, as an archiver that stood
still may have turns from before. Archivers and readers of turns ask for it, and remember the answer for a while.
"""

import time
from collections.abc import Callable

import msgspec

from store.archive.archive import Archive
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat
from store.keys import checked_tenant

GONE, HOLD = "00/gone", "00/hold"
VERSION = 1
"""The version of a mark that this release writes, and the newest that it reads."""

REMEMBERED_SECONDS = 60.0
"""How long a mark that was read is believed: for so long others may not know of a new one."""

MOST_REMEMBERED = 10_000
"""The tenants whose marks are remembered; with more, all are asked for again."""

TRIES = 8
"""How often a mark is read again because somebody else has changed it."""


class Mark(msgspec.Struct, frozen=True):
    """A mark, and the time that it is about, in µs since 1970."""

    at: int
    version: int = VERSION


_decoder = msgspec.json.Decoder(Mark)


class Marks:
    """The marks of tenants. All raise ArchiveUnavailable, ArchiveDamaged and NewerFormat for unreadable marks, and
    ValueError for a malformed tenant.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        remembered_seconds: float = REMEMBERED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._archive, self._remembered_seconds, self._clock = archive, remembered_seconds, clock
        self._remembered: dict[str, tuple[float, int]] = {}

    async def erased_until(self, tenant: str, *, anew: bool = False) -> int:
        """The time until which all of a tenant was erased, in µs since 1970; 0 where nothing was. It may be
        REMEMBERED_SECONDS old, unless it is asked for `anew`.
        """
        now = self._clock()
        until, at = self._remembered.get(tenant, (now, 0))
        if now < until and not anew:
            return at
        mark, _ = await self._read(GONE, tenant)
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        at = mark.at if mark else 0
        self._remembered[tenant] = now + self._remembered_seconds, at
        return at

    async def erase(self, tenant: str, at: int) -> None:
        """Note that all is erased that the tenant had until then, in µs since 1970; an earlier time changes nothing."""
        for _ in range(TRIES):
            mark, etag = await self._read(GONE, tenant)
            if mark is not None and mark.at >= at:
                return
            if await self._archive.put(key_of(GONE, tenant), _encode(at), only_if=etag) is not None:
                break
        else:
            raise ArchiveUnavailable(f"others have changed the mark {TRIES} times meanwhile")
        self._remembered.pop(tenant, None)

    async def is_held(self, tenant: str) -> bool:
        """Whether a tenant's turns are on hold."""
        mark, _ = await self._read(HOLD, tenant)
        return mark is not None

    async def hold(self, tenant: str, at: int) -> bool:
        """Put all of a tenant on hold; False where it is already."""
        return await self._archive.put(key_of(HOLD, tenant), _encode(at), only_if=None) is not None

    async def release(self, tenant: str) -> None:
        """End a tenant's hold."""
        await self._archive.delete(key_of(HOLD, tenant))

    async def _read(self, kind: str, tenant: str) -> tuple[Mark | None, str | None]:
        """A mark and its etag."""
        key = key_of(kind, tenant)
        stored = await self._archive.get(key)
        return (None, None) if stored is None else (mark_in(key, stored.value), stored.etag)


def mark_in(key: str, value: bytes) -> Mark:
    """The mark in a value. Raises ArchiveDamaged, NewerFormat."""
    try:
        mark = _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ArchiveDamaged(f"{key} is no mark") from error
    if mark.version > VERSION:
        raise NewerFormat(mark.version)
    return mark


def key_of(kind: str, tenant: str) -> str:
    """The key of a tenant's mark. Raises ValueError for a malformed tenant."""
    return f"v1/{kind}/t.{checked_tenant(tenant)}"


def _encode(at: int) -> bytes:
    return msgspec.json.encode(Mark(at))
