"""The port of files that requests name by their ids: who has some puts their content into items before these are read.

So what was read stands in the conversation, and goes on when the file is gone. Here there are none.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from service.entrance import Entry


class AttachedFile(NamedTuple):
    """A file that a request names by its id: its name, its length in bytes, and its content, to be read once."""

    name: str
    size: int
    content: AsyncIterator[bytes]


class Attachments:
    """The files of all tenants."""

    async def find(self, entry: Entry, id: str) -> AttachedFile | None:
        """A file of a caller; None where it has none with this id. Raises ApiError 403, StoreError."""
        return None

    async def read_into(self, entry: Entry, items: msgspec.Raw) -> msgspec.Raw:
        """Items as they were sent, with the content of files in the place of their ids. An id that leads to none stays
        as it is. Raises ApiError, StoreError.
        """
        if bytes(memoryview(items)[:1]) != b"[" or not may_name_files(items):
            return items
        return await self.put_into(entry, items)

    async def put_into(self, entry: Entry, items: msgspec.Raw) -> msgspec.Raw:
        """The same of a list of items that may name files."""
        return items


def may_name_files(raw: msgspec.Raw) -> bool:
    """Whether JSON may name files, or have some in it."""
    sent = bytes(raw)
    return b'"file_id"' in sent or b'"file_data"' in sent


NO_ATTACHMENTS = Attachments()
