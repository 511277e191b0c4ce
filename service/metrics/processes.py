"""Several processes behind one port count together: prometheus_client keeps each value in a mapped file of a folder.

A scrape reaches one of the processes by chance and has to show the sum. A process counts in the files of its number,
which its supervisor gives it. The process that replaces a dead one has its number and goes on with its counters: sums
never fall, and there are never more files than for `workers` processes. Nothing here is used by a process that serves
alone.
"""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from prometheus_client import Metric, values
from prometheus_client.multiprocess import (
    MultiProcessCollector,
    mark_process_dead,  # pyright: ignore[reportUnknownVariableType]
)
from prometheus_client.process_collector import ProcessCollector

from service.settings.core import metrics_folder


def take_number(number: int) -> None:
    """Have metrics that are made from now on count in the files of `number`, whose former gauges are deleted."""
    folder = metrics_folder()
    assert folder is not None, "a supervisor has several processes count together"
    mark_process_dead(number, str(folder))
    (folder / f"{number}.pid").write_text(str(os.getpid()))
    values.ValueClass = values.MultiProcessValue(partial(int, number))  # pyright: ignore[reportUnknownMemberType]


def folder_of(workers: int) -> Path | None:
    """The folder in which this process counts together with others; None if it counts in its memory, alone."""
    folder = metrics_folder()
    if workers == 1 or folder is None:
        values.ValueClass = values.MutexValue  # whatever the variable says: it may be set for another program
        return None
    return folder


class Together:
    """The collector of all processes' metrics, as prometheus_client wants it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """The sums, and of each process the CPU time, memory and open files that the system knows of it."""
        yield from MultiProcessCollector(None, str(self._folder)).collect()  # pyright: ignore[reportUnknownMemberType]
        families: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("*.pid")):
            pid = path.read_text()  # of a process that is dead there is nothing to tell
            for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    family.add_sample(sample.name, {"process": path.stem}, sample.value)
        yield from families.values()
