"""A process that uploads a file to a store until it is killed: `python uploading.py URL PREFIX FOLDER LEASE_SECONDS`.

FOLDER is that of an archive, or empty. It prints a line when it has stored two pieces.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from store.archive.opening import open_archive
from store.files.files import PIECE_BYTES, FileRecord, Files
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect


async def endless() -> AsyncIterator[bytes]:
    yield bytes(3 * PIECE_BYTES)
    print("stored", flush=True)
    await asyncio.Event().wait()


async def upload(url: str, prefix: str, folder: str, lease_seconds: float) -> None:
    archive = open_archive(f"sqlite://{folder}", Path("/nowhere")) if folder else None
    history = ConversationHistoryStore(connect(url), prefix=prefix)
    await Files(history, archive, lease_seconds=lease_seconds).store("acme", FileRecord(), endless())


if __name__ == "__main__":
    asyncio.run(upload(*sys.argv[1:4], float(sys.argv[4])))
