"""What a history asks for turns that it has no more: an archive, where there is one (store/backup/archiving/).

The history knows no archive. It says of which turn it has nothing, and then either shows what is told of it, or has it
brought back to go on with it as with any other.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from store.turn import Messages, Status


class ArchivedTurn(NamedTuple):
    """A turn that has ended and left the store: what it was as a response, JSON with its input items, what it added,
    and its mode if it was made in the background.
    """

    status: Status
    response: bytes
    items: bytes
    messages: Messages
    background: str | None


class AwayBranches(NamedTuple):
    """The branches of a tree that have left the store: the digits of their ends, the newest first; and whether these
    are all.
    """

    ends: Sequence[str] = ()
    whole: bool = True


class ArchiveReader(Protocol):
    """Where turns are that have left the store. All raise StoreUnavailable, ArchiveUnavailable, which says nothing of
    whether there is such a turn, ArchiveDamaged and NewerFormat.
    """

    async def find(self, tenant: str, digits: str) -> ArchivedTurn | None:
        """A turn; None where none is there for this tenant, or it was deleted."""
        ...

    async def lineage(self, tenant: str, digits: str) -> Sequence[str] | None:
        """The ids from the root to a turn; None as for `find`."""
        ...

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        """The branches of a tree, `most` at the most, that are not in the store, which has the turns with the digits
        `here`.
        """
        ...

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Have a turn in the store again with all above it; whether it was there. Raises StoreFull, too."""
        ...

    async def bring_remains(self, tenant: str, digits: str) -> bool:
        """The same of a turn that was deleted and that others continue: what is left of it is in the store again."""
        ...


class NoArchive:
    """What leaves the store is gone."""

    async def find(self, tenant: str, digits: str) -> ArchivedTurn | None:
        """Nothing."""
        return None

    async def lineage(self, tenant: str, digits: str) -> Sequence[str] | None:
        """Nothing."""
        return None

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        """Nothing."""
        return AwayBranches()

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Nothing."""
        return False

    async def bring_remains(self, tenant: str, digits: str) -> bool:
        """Nothing."""
        return False


NOWHERE = NoArchive()
