"""Adds words to what a row of a catalogue shows, one after the other: `cataloguing FILE TIMES`. Others do the same."""

import asyncio
import sys
from pathlib import Path
from secrets import token_hex

from store.catalogue.catalogue import Catalogue
from store.catalogue.rows import CatalogueRow
from store.catalogue.sqlite import SqliteCatalogue
from tests.support.archive.patience import PATIENT

TENANT, TREE = "acme", "00aa"


async def add_words(path: Path, times: int) -> None:
    """Add so many words, whoever else does the same."""
    catalogue, done = Catalogue(SqliteCatalogue(path, PATIENT.request_seconds)), 0
    while done < times:
        version, row = await catalogue.row(TENANT, TREE)
        words = f"{row.shown.decode() if row else ''} {token_hex()}"
        more = CatalogueRow(1, "", "", words.encode(), (), words)
        done += await catalogue.put(TENANT, TREE, more, token_hex(), version)
    await catalogue.close()


if __name__ == "__main__":
    asyncio.run(add_words(Path(sys.argv[1]), int(sys.argv[2])))
