"""Several processes behind one port count together, in files of a folder that all of them can read.

A scrape reaches one of the processes by chance and has to show the sum. So prometheus_client keeps each value in a
mapped file, one set of files a slot. A process takes a slot with a lock, which the kernel releases when it dies, and
goes on with the counters of the process that had the slot before: sums never fall, and there are never more slots than
there were processes at once. prometheus_client's own way, a set of files for each process id, leaves one behind for
every process that ever died. Nothing here is used by a process that serves alone.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from prometheus_client import Metric, values
from prometheus_client.multiprocess import (
    MultiProcessCollector,
    mark_process_dead,  # pyright: ignore[reportUnknownVariableType]
)
from prometheus_client.process_collector import ProcessCollector

from service.settings.core import metrics_folder

MAX_SLOTS = 1024
"""Far more than WORKERS may be: a replacement may begin before its predecessor has ended."""

FILE_BYTES = 256 * 1024
"""The initial size of a file. All metrics fit in; it grows only if that was misjudged."""

KINDS = ("counter", "histogram", "gauge_livesum")
"""The sets of values that have a file each, by the names that prometheus_client gives them."""


def take_slot(workers: int) -> Path | None:
    """The folder in which all metrics count that this process makes from now on, in the first free slot; None if it is
    the only one of `workers`, and counts in its memory. Raises OSError.
    """
    folder = metrics_folder()
    if workers == 1 or folder is None:
        values.ValueClass = values.MutexValue  # whatever the variable says: it may be set for another program
        return None
    for number in range(MAX_SLOTS):
        if (lock := _locked(folder, number)) is not None:  # it is never closed: the slot is free once we have ended
            os.pwrite(lock, b"%10d" % os.getpid(), 0)
            mark_process_dead(number, str(folder))
            _make_files(folder, number)
            slot = partial(int, number)
            values.ValueClass = values.MultiProcessValue(slot)  # pyright: ignore[reportUnknownMemberType]
            return folder
    raise OSError(f"all {MAX_SLOTS} slots in {folder} are taken")


class Together:
    """The collector of all processes' metrics, as prometheus_client wants it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """The sums, and of each living process what the system says of it. Gauges of the dead are left out."""
        living = dict(self._living())
        for kind in KINDS:
            files = map(str, self._folder.glob(f"{kind}_*.db"))
            yield from MultiProcessCollector.merge(files)  # pyright: ignore[reportUnknownMemberType]
        yield from _of_processes(living)

    def _living(self) -> Iterator[tuple[int, int]]:
        """The slots that are taken, with the process ids; the gauges of the others are deleted."""
        for path in sorted(self._folder.glob("*.lock")):
            number = int(path.stem)
            if (lock := _locked(self._folder, number)) is None:
                pid = path.read_text()
                if pid:  # empty for the moment in which another process tries, or takes it
                    yield number, int(pid)
                continue
            try:
                mark_process_dead(number, str(self._folder))
            finally:
                os.close(lock)


def _of_processes(living: Mapping[int, int]) -> Iterable[Metric]:
    """CPU time, memory and open files of the processes in some slots, by their process ids."""
    families: dict[str, Metric] = {}
    for number, pid in living.items():
        for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():
            family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
            for sample in found.samples:
                family.add_sample(sample.name, {"process": str(number)}, sample.value)
    return families.values()


def _locked(folder: Path, number: int) -> int | None:
    """The descriptor of a slot's lock, or None if another process has it."""
    lock = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _make_files(folder: Path, number: int) -> None:
    """Make the files that aren't there: complete at once, as one that is still empty can't be read.

    They are written and not just long, so that a full disk is an error now, and none in the middle of counting.
    """
    for kind in KINDS:
        path = folder / f"{kind}_{number}.db"
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.write_bytes(bytes(FILE_BYTES))
            fresh.rename(path)
