"""The port through which a history asks for turns that left it: an archive, if there is one (store/backup/archiving/).

The history knows no archive. It asks for a turn that it lacks, and then either shows the archived turn, or has it
brought back to continue it like any other.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from store.turn import Messages, Status


class ArchivedTurn(NamedTuple):
    """A turn that has ended and left the store: its response and its input items, both JSON, its messages, and its mode
    if it was made in the background.
    """

    status: Status
    response: bytes
    items: bytes
    messages: Messages
    background: str | None


class AwayBranches(NamedTuple):
    """The branches of a tree that left the store: the digits of their ends, newest first; `whole` if these are all."""

    ends: Sequence[str] = ()
    whole: bool = True


class ArchiveReader(Protocol):
    """Reads the turns that have left the store; without an archive, none. All methods raise StoreUnavailable,
    ArchiveDamaged, NewerFormat, and ArchiveUnavailable, which leaves open whether there is such a turn.
    """

    async def find(self, tenant: str, digits: str) -> ArchivedTurn | None:
        """An archived turn; None where this tenant has none, or it was deleted."""
        return None

    async def lineage(self, tenant: str, digits: str) -> Sequence[str] | None:
        """The ids from the root to a turn; None as for `find`."""
        return None

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        """At most `most` branches of a tree that are not in the store, which has the turns with the digits `here`."""
        return AwayBranches()

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Bring a turn back into the store with all above it; False if it isn't archived. Raises StoreFull, too."""
        return False

    async def bring_remains(self, tenant: str, digits: str) -> bool:
        """The same for a deleted turn that others continue: brings back its remains."""
        return False


class _NoArchive(ArchiveReader):
    """No archive: a turn that leaves the store is gone."""


NO_ARCHIVE: ArchiveReader = _NoArchive()
