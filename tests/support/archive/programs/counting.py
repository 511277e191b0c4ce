"""Adds one to a number in an archive, again and again: `counting URL KEY TIMES`."""

import asyncio
import sys
from pathlib import Path

from store.archive.archive import Archive
from store.archive.opening import open_archive
from tests.support.archive.patience import PATIENT


async def increment(archive: Archive, key: str, times: int) -> None:
    """Add one to a number so many times, whoever else does the same."""
    done = 0
    while done < times:
        found = await archive.get(key)
        number = int(found.value) if found else 0
        done += await archive.put(key, b"%d" % (number + 1), only_if=found and found.etag) is not None


async def count(url: str, key: str, times: int) -> None:
    archive = open_archive(url, Path("/nowhere"), PATIENT)
    await increment(archive, key, times)
    await archive.close()


if __name__ == "__main__":
    asyncio.run(count(sys.argv[1], sys.argv[2], int(sys.argv[3])))
