"""The port through which a history asks for turns that left it: an archive, if there is one (store/backup/archiving/).

The history knows no archive. It asks for a turn that it lacks, and then either shows the archived turn, or has it
brought back to continue it like any other, or notes that it is deleted.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from store.keys import ShardKeys
from store.turn import Messages, Picture, Status


class ArchivedTurn(NamedTuple):
    """A turn that has ended and left the store: its response and its input items, both JSON, its messages, its mode if
    it was made in the background, and its pictures.
    """

    status: Status
    response: bytes
    items: bytes
    messages: Messages
    background: str | None
    pictures: Sequence[Picture] = ()


class Archived(NamedTuple):
    """When the archive was asked for a turn, in ms by the server's clock, and for how long its answer holds at least:
    deletions since then are known for as long. The digits of the root of its tree, and whether it was `deleted`, and
    others continue it. The `source` of a turn that is to be stored, as store/redis/lua/restore.lua has it, and whether
    it was `continued`, or may have been.
    """

    asked_ms: int = 0
    fence_ms: int = 0
    root: str = ""
    deleted: bool = False
    source: str = ""
    continued: bool = False


FROM_ARCHIVE, FROM_FILE = "archive", "file"
NOT_ARCHIVED, IF_STORED = Archived(), Archived(source="store")


class Outdated(Exception):
    """A turn may have been deleted since the archive was asked for it."""


class AwayBranches(NamedTuple):
    """The branches of a tree that left the store: the digits of their ends, newest first; `whole` if these are all."""

    ends: Sequence[str] = ()
    whole: bool = True


class Fate(NamedTuple):
    """The word of an archive on a turn that may be stored again: whether it is there, or was deleted, and until when
    all of its tenant was erased, in µs since 1970. It was asked for at `asked_ms` by the clock of the turn's server;
    for `fence_ms` from then on deletions are known that it may have missed.
    """

    asked_ms: int
    fence_ms: int
    there: bool
    gone: bool
    erased: int


FIRST = (1 << 62, "~")
"""A place before all others."""


class KeptQuery(NamedTuple):
    """The trees of a tenant in an archive that are wanted: so many, behind a place, used from `since` on, in µs since
    1970, with all of these facts, and the beginnings of all of these words.
    """

    limit: int
    before: tuple[int, str] = FIRST
    since: int = 0
    facts: Sequence[str] = ()
    words: Sequence[str] = ()


class KeptTree(NamedTuple):
    """A tree in an archive: its shard and its digits, its last use in µs since 1970 as far as the archive knows, the
    digits of its root and of its newest turn, what is to be shown of it, and the text around the words. `here` is its
    last use in memory, 0 where it isn't there; `changing` says that the archive has not heard of all that was deleted,
    `gone` that all of it was.
    """

    tree: str
    used: int
    root: str
    newest: str
    shown: bytes
    text: str = ""
    here: int = 0
    changing: bool = False
    gone: bool = False

    @property
    def place(self) -> tuple[int, str]:
        """The place in a list, the tree used last first."""
        return self.used, self.tree


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

    async def fate(self, tenant: str, digits: str) -> Fate | None:
        """The fate of a turn that the store lacks; None without an archive."""
        return None

    lists = False
    """Whether `find_kept` finds what is there; it finds nothing else."""

    async def archived_until(self) -> float:
        """The time in seconds since 1970 until which the archive has all that changed, but for what is under way."""
        return 0.0

    async def find_kept(self, tenant: str, query: KeptQuery) -> Sequence[KeptTree]:
        """The trees of a tenant in the archive that are wanted, the one used last first: as many as are wanted
        unless there are no more.
        """
        return ()

    async def unread_shards(self) -> Sequence[str]:
        """The shards of the archive that can't be read, so `find_kept` finds nothing of them."""
        return ()

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Bring a turn back into the store with all above it; False if it isn't archived. Raises StoreFull, too."""
        return False

    async def make_room(self, shard: ShardKeys) -> bool:
        """Archive those turns of a shard that memory needs to give up next; False if there are none. Returns once that
        is done, for all that ask meanwhile. Raises the reason why it can't be.
        """
        return False

    async def delete(
        self, tenant: str, digits: str, delete: Callable[[Archived], Awaitable[None]], *, remains: bool = False
    ) -> bool:
        """Call `delete`, which notes that an archived turn is deleted, with what the archive says of that; again where
        it raises Outdated. False where there is no such turn; with `remains` a deleted one will do that others
        continue. Raises the errors of `delete`.
        """
        return False


class _NoArchive(ArchiveReader):
    """No archive: a turn that leaves the store is gone."""


NO_ARCHIVE: ArchiveReader = _NoArchive()
