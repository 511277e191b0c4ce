"""Writes into an archive for ever, and says which keys it has written: `writing URL FOLDER`. It gets killed."""

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from store.archive.archive import Archive
from store.archive.opening import open_archive
from tests.support.archive.patience import PATIENT

AT_ONCE = 16
VALUE_BYTES = 6000


async def write(archive: Archive, folder: str, first: int) -> None:
    for number in count(first, AT_ONCE):
        key = f"{folder}/{number:08d}"
        if await archive.put(key, os.urandom(VALUE_BYTES), only_if=None) is not None:
            print(key, flush=True)


async def main(url: str, folder: str) -> None:
    archive = open_archive(url, Path("/nowhere"), PATIENT)
    await asyncio.gather(*(write(archive, folder, first) for first in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
