"""The watcher of a store and of its archive: who counts and logs hears here of all that happens in them.

Each method is called at the event of its name. It never blocks and never raises; here each does nothing.
"""

from store.errors import ArchiveUnavailable, LayoutMismatch, StoreUnavailable


class Watcher:
    """Hears of all, and does nothing."""

    def took(self, seconds: float) -> None:
        """An operation ended well, after so many seconds, its wait for a connection included."""

    def failed(self, why: str) -> None:
        """An operation raises StoreUnavailable: `timeout`, `error` or `unconfirmed`."""

    def gone(self, failure: StoreUnavailable) -> None:
        """The server goes away."""

    def back(self, seconds: float, failure: StoreUnavailable) -> None:
        """The server is back, which was away for so many seconds by this failure."""

    def waited(self, confirmed: bool, seconds: float) -> None:
        """A row of turns was waited for: whether all of it is safe, and how many seconds that took."""

    def removed(self, reason: str, turns: int) -> None:
        """Turns went without a deletion: for a passed bound (`responses`, `trees`, `bytes`, or the `memory` of the
        server), or `idle`.
        """

    def contradicted(self, mismatch: LayoutMismatch) -> None:
        """The layout record newly contradicts this process."""

    def archived(self, trees: int) -> None:
        """So many trees were archived."""

    def not_archived(self, root: str, reason: str) -> None:
        """The tree of a root could not be archived as it is; it is tried again later."""

    def archive_asked(self, outcome: str) -> None:
        """The archive was asked for a turn."""

    def archive_moved(self, direction: str, size: int) -> None:
        """A value of so many bytes was read (`read`) or stored (`write`)."""

    def archive_failed(self, error: ArchiveUnavailable) -> None:
        """A call of the archive failed."""


UNWATCHED = Watcher()
