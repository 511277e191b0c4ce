"""The refusals of the store. Each error is raised where the fact is known, and has one meaning."""

import errno
from datetime import UTC, datetime
from typing import ClassVar, Literal

SHOWN_CHARS = 100
"""How much of an id that can't exist a message shows; ids that can exist are shorter."""


class StoreError(Exception):
    """Any refusal of the store."""


class IdError(StoreError):
    """A refusal about one id: of a turn, or of a conversation. `says` is its message."""

    says: ClassVar[str]

    def __init__(self, id: str) -> None:
        super().__init__(self.says.format(id[:SHOWN_CHARS]))
        self.id = id


class NotFound(IdError):
    """No turn of this tenant has the id: unknown, deleted, evicted and foreign are the same."""

    says = "no turn {!r}"


class ParentNotFound(NotFound):
    """The turn that was to be continued is not there."""


class ConversationNotFound(NotFound):
    """No conversation of this tenant has the id. Never says whether it existed or which tenant has it."""


class ConversationHeld(IdError):
    """A run that will be added to the conversation is under way, and there is one at a time."""

    says = "conversation {!r} is held by a run"


class ConversationMoved(IdError):
    """The conversation has another tip by now: this run's hold had ended, and another run came in between."""

    says = "conversation {!r} has moved on meanwhile"


class NotContinuable(StoreError):
    """The turn exists but can't have children, because of its `status`."""

    def __init__(self, id: str, status: str) -> None:
        super().__init__(f"turn {id!r} is {status} and can't be continued")
        self.id = id
        self.status = status


class ChainTooLong(NotContinuable):
    """The turn can't have children, because its chain has the most turns, messages or bytes allowed."""

    def __init__(self, id: str) -> None:
        StoreError.__init__(self, f"turn {id!r} ends a chain that is too long to continue")
        self.id = id
        self.status = "at the limit of its chain"


class Conflict(IdError):
    """A different turn with this id is stored already."""

    says = "another turn {!r} is stored already"


class TenantErased(IdError):
    """A turn is from before all of its tenant was erased, and is not stored again."""

    says = "turn {!r} is from before all of its tenant was erased"


class StoreFull(StoreError):
    """There is no room for a turn, as runs use all evictable turns; later there may be."""

    reason = "running responses use all that is stored"

    def __init__(self, reason: str = "") -> None:
        super().__init__(f"no room for another turn: {reason or self.reason}")


class StoreUnarchived(StoreFull):
    """There is no room for a turn before the archive has more of those that it lacks; `away` is why it takes none."""

    def __init__(self, away: "ArchiveUnavailable | ArchiveForeign | ArchiveUnfit | None" = None) -> None:
        super().__init__(str(away or "what could leave memory isn't in the archive yet"))
        self.away = away


class MemoryFull(StoreFull):
    """The server has no memory left for a turn, and no more may leave it in this moment."""

    reason = "the server has no memory left"


class DiskFull(StoreFull):
    """The disk of the embedded server is nearly full. It takes turns again once conversations were deleted, or
    somebody made room; until then stored turns can be read and deleted.
    """

    reason = "the disk is nearly full"


class TurnTooLarge(IdError):
    """A turn that can't be stored below the cap on bytes, whatever is evicted."""

    says = "turn {!r} and the chain before it are larger than all that may be stored"


class NotTerminal(IdError):
    """A response is under way, so it can't be deleted; cancel it first."""

    says = "turn {!r} is under way"


class StatusError(IdError):
    """A refusal about a response that has ended with `status`; where that is None, for the reason that it `says`."""

    def __init__(self, id: str, status: str | None) -> None:
        super().__init__(id)
        self.status = status
        if status:
            self.args = (f"turn {id!r} is {status} already",)


class NotCancellable(StatusError):
    """A response that can't be cancelled: it has ended with `status`, or is in the foreground, if that is None."""

    says = "turn {!r} was not made in the background"


class NotSteerable(StatusError):
    """A response that takes no steers: it has ended with `status`, or was not made steerable, if that is None."""

    says = "turn {!r} can't be steered"


class SteersFull(IdError):
    """A response has the most steers that it may have before its end."""

    says = "as much was said to turn {!r} as there may be"


class Steered(IdError):
    """A response got a steer that the process which ends it doesn't know yet."""

    says = "something else was said to turn {!r}"


class QueueFull(StoreError):
    """The queue of the shard is at its limit, of all jobs or of those that have hours: in number or in bytes."""

    def __init__(self, most: int, *, what: Literal["jobs", "bytes"] = "jobs", hours: bool = False) -> None:
        those = "jobs that have hours" if hours else "jobs"
        super().__init__(
            f"{most} {those} wait already" if what == "jobs" else f"{those} with {most} bytes wait already"
        )
        self.most = most
        self.what = what
        self.hours = hours


class RegistryMoved(IdError):
    """A record of the registry is not the one that a change read: another change came in between."""

    says = "the record {!r} was changed by somebody else"


class RegistryFull(IdError):
    """A list of the registry has as many names as it may."""

    says = "the list {!r} is full"


class LeaseLost(IdError):
    """Somebody else works on the job, or it has ended: writes of its former holder are refused."""

    says = "the lease of {!r} is lost"


class LogFull(IdError):
    """All event logs together are at their limit, and those of ended responses are gone already."""

    says = "no room for another event of {!r}"


class LogBehind(StoreError):
    """An event log ends with event `last`, before the last one that its writer wrote: the server has lost its end."""

    def __init__(self, id: str, last: int) -> None:
        super().__init__(f"the log of {id!r} ends with event {last}; what was written behind it is gone")
        self.id = id
        self.last = last


class NewerFormat(StoreError):
    """A stored value has a format version that this release doesn't know."""

    def __init__(self, version: int) -> None:
        super().__init__(f"a stored value has format version {version}, which this release can't read; upgrade it")
        self.version = version


class UnknownDictionary(NewerFormat):
    """A stored value was compressed with a dictionary that this release doesn't have."""

    def __init__(self, number: int) -> None:
        StoreError.__init__(
            self, f"a stored value needs dictionary {number}, which this release doesn't have; upgrade it"
        )
        self.version = number


class Unsupported(StoreError):
    """The server can't do what a setting asks for: the message names both, and what to do."""


class LayoutMismatch(StoreError):
    """The store's layout record and this process contradict each other: `reason` says how, `remedy` is the way out."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class OtherLayout(LayoutMismatch):
    """The store has another layout than this process knows."""


class LimitsDiffer(LayoutMismatch):
    """The limits of this process differ from the store's: it would delete turns that others keep, or keep less."""


class BadBackup(StoreError):
    """A file that is no backup, or no whole one: cut short, damaged, or made by something else. None of it is used."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the file can't be used: {why}")
        self.why = why


class NoStore(StoreError):
    """There is no store, or no archive, in the folder that is named: one of its own would be empty."""


class StoreUnavailable(StoreError):
    """The server did not answer within the time limit, refused the connection, or failed."""


class StoreBarred(StoreUnavailable):
    """The store has another layout than this process knows, so nothing was asked of it."""


class StoreReadOnly(StoreUnavailable):
    """The server takes no writes: it is a replica, too few replicas follow it, or it can't save its data."""


class StoreUnconfirmed(StoreUnavailable):
    """The write is there, but the replicas or the disk that should have it did not have it in time."""


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, "SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "53100"})
"""The ways in which a file, SQLite, whose log needs room beside its file, and Postgres say that there is no room."""


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error of one of these says so."""
    known = [getattr(error, name, None) for name in ("errno", "sqlite_errorname", "sqlstate")]
    return not DISK_FULL.isdisjoint(known)


class ArchiveUnavailable(StoreError):
    """The archive did not answer in time, or failed, for this `reason`; it may have carried the request out."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the archive is unavailable: {reason}")
        self.reason = reason

    @property
    def disk_full(self) -> bool:
        """Whether it is known to be so because the archive's disk is full."""
        return is_disk_full(self.__cause__)


class ArchiveUncatalogued(ArchiveUnavailable):
    """The catalogue of the archive is being made, and would be taken for whole."""

    def __init__(self) -> None:
        super().__init__("its catalogue is being made, and finds only some of it")


class ArchiveContended(ArchiveUnavailable):
    """Others changed the same tree at each try to read or change it."""


class ArchiveBusy(ArchiveUnavailable):
    """This process has as many requests to the archive as it may have, in all or for one tenant."""

    def __init__(self) -> None:
        super().__init__("too much is asked of it at once")


class ArchiveRefused(ArchiveUnavailable):
    """The archive refuses, and a retry doesn't help before somebody follows the advice in the reason."""


class ArchiveDamaged(StoreError):
    """A tree in an archive can't be read: `fault` describes a damaged value, which is left as it is. All other trees
    can be read.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(f"what the archive has of a tree is damaged: {fault}")
        self.fault = fault


class ClockDoubted(StoreError):
    """A clock may have jumped, for this reason: nothing is deleted for its age today."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}: nothing is deleted for its age today")


class ArchiveUnfit(StoreError):
    """A probed store can't be an archive: `fault` names its fault."""

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"names a store that can't be an archive, as {fault}; use one with conditional writes, as S3 has them"
        )
        self.fault = fault


class ArchiveForeign(StoreError):
    """The secret in an archive is not the store's, so the archive has the turns of another store."""

    fault = "names the archive of another store; name this store's own, or an empty prefix or folder"

    def __init__(self, fault: str = "") -> None:
        super().__init__(fault or self.fault)


class ArchiveReplaced(ArchiveForeign):
    """An archive is not the store's, or is empty: the turns that left memory are not in it."""

    fault = (
        "names an archive without what left this store's memory, which is in another one: is its volume mounted, "
        "and do all that share the store name the same? To begin a new one, start once with none (docs/archive.md)"
    )


class ArchiveWentBack(ArchiveForeign):
    """An archive is an older copy of the store's: it lacks turns that it had, and may have deleted ones. `shard` shows
    it, and `at` is when its head there was written, in µs since 1970; 0 where it has none.
    """

    def __init__(self, shard: int, at: int) -> None:
        self.shard, self.at = shard, at
        super().__init__(
            f"names an older copy of this store's archive: shard {shard:02x} is {self.age}. Deletions since then are "
            "undone in it, and it lacks what left memory since then. Put the newest copy in its place, or take this "
            "one with `harmonium archive accept` (docs/archive.md)"
        )

    @property
    def age(self) -> str:
        """The age of its copy of the shard, to be said after `is`."""
        return (
            f"of {datetime.fromtimestamp(self.at / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC" if self.at else "without its file"
        )


class ArchiveShared(ArchiveForeign):
    """Another Redis uses the archive."""

    fault = (
        "names an archive that another Redis uses at the moment: one archive is of one store. Stop the services of "
        "that one, or name another archive"
    )


class ArchiveUnnamed(StoreError):
    """A store has an archive, with all that left its memory, and the caller names none."""

    def __init__(self) -> None:
        super().__init__("the store has an archive: name it as `harmonium serve` does, with HARMONIUM_ARCHIVE_URL")


class DataFolderBusy(StoreError):
    """Another process owns the data folder `path`; `pid` is its id, where that is known."""

    def __init__(self, path: str, pid: int | None) -> None:
        owner = "another process" if pid is None else f"process {pid}"
        super().__init__(f"the data folder {path} is in use by {owner}")
        self.path = path
        self.pid = pid
