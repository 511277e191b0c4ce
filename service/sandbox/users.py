"""The users that sessions have where each has one of its own: root alone can give them.

Sandboxes of one machine never have the same ones, whatever their folders are: each takes a range of them for as long as
its process lives, by a lock that the kernel lets go of.
"""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.sandbox.port import Unusable

RANGE = 512
"""The most sessions that a sandbox has."""

FIRST_UIDS = (64_000, 64_512, *range(65_536, 65_536 + 62 * RANGE, RANGE))
"""Where ranges begin: numbers that no system gives to people. A container often has no others than the first two, which
systemd may give to a service for which it makes up a user; those from 65,536 on are nobody's.
"""

LOCKS = (Path("/run"), Path(tempfile.gettempdir()))
"""Where the locks lie: in the first that can be written."""


class Users:
    """The users of a sandbox's sessions, taken while this object isn't closed."""

    def __init__(self, folders: Sequence[Path] = LOCKS) -> None:
        """Takes a range. Raises Unusable where there is none."""
        self._first, self._lock = -1, -1
        if os.getuid():
            return
        folder = next((each for each in folders if os.access(each, os.W_OK)), folders[-1])
        for first in FIRST_UIDS:
            self._lock = _locked(folder / f"harmonium-sandbox-{first}.lock")
            if self._lock >= 0:
                self._first = first
                return
        raise Unusable(f"{len(FIRST_UIDS)} sandboxes of this machine have all users that sessions may have")

    def of(self, place: int) -> int | None:
        """The user of a place; None where all have this process's."""
        return self._first + place if self._first >= 0 else None

    def close(self) -> None:
        """Let others have them. Nothing of these users may be left."""
        if self._lock >= 0:
            os.close(self._lock)


def _locked(path: Path) -> int:
    """A file, locked; -1 where somebody else has it. Raises Unusable where there can be none."""
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(f"sessions can't have users of their own: {path}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return -1
    return lock
