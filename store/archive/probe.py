"""The proof that a store is fit for an archive: conditional writes are conditional, and reads return the last write.

There are servers that speak S3 and ignore conditions, without a word. On such a server two archivers overwrite each
other, and erased turns come back.
"""

import secrets
from typing import Protocol

from store.archive.port import Stored
from store.errors import ArchiveUnfit

FOLDER = "v1/probe"
"""The folder in which a probe puts its value, under a name of its own, and deletes it."""


class Probed(Protocol):
    """The verbs of an archive that a probe needs."""

    async def get(self, key: str) -> Stored | None: ...
    async def put(self, key: str, value: bytes, *, only_if: str | None) -> str | None: ...
    async def delete(self, *keys: str) -> None: ...


async def prove(archive: Probed) -> None:
    """Create a value twice, and replace it with a stale etag. Raises ArchiveUnfit where the store does either, and
    ArchiveUnavailable.
    """
    key = f"{FOLDER}/{secrets.token_hex(16)}"
    fault = await _fault(archive, key)
    await archive.delete(key)
    if fault is None and await archive.get(key) is not None:
        fault = "it still tells what was deleted"
    if fault is not None:
        raise ArchiveUnfit(fault)


async def _fault(archive: Probed, key: str) -> str | None:
    """The fault of the store, None where there is none. A clash with the probe's own write is none."""
    if await archive.get(key) is not None:
        return "it has a value where none was ever stored"
    await archive.put(key, b"first", only_if=None)
    first = await archive.get(key)
    if first is None or first.value != b"first":
        return "it doesn't tell what was written"
    if await archive.put(key, b"created twice", only_if=None) is not None:
        return "it creates what is there already (it ignores If-None-Match)"
    await archive.put(key, b"second", only_if=first.etag)
    second = await archive.get(key)
    if second is None or second.value != b"second":
        return "it doesn't replace a value by its etag"
    if await archive.put(key, b"replaced twice", only_if=first.etag) is not None:
        return "it replaces a value by a stale etag (it ignores If-Match)"
    if await archive.get(key) != second:
        return "a write that it refused has changed something"
    return None
