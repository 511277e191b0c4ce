"""What a process does with its memory once it has loaded all that it needs.

What start-up made stays for good, so no garbage is looked for in it again, and memory that it freed goes back to the
system. So do pages of files that were read through once: the compiled tokenizer alone has 70 MB of vocabularies, of
which one is copied out of it. A page that is used again comes from the system's cache of files, within a µs.

Never call it while requests are served.
"""

import ctypes
import gc
import re
from pathlib import Path

DONT_NEED = 4
"""MADV_DONTNEED of <sys/mman.h>, on Linux."""

MAPS = Path("/proc/self/maps")
_READ_ONLY = re.compile(r"^(\w+)-(\w+) r--p 0+ \S+ [1-9]\d* +/", re.MULTILINE)
"""The read-only beginning of a file that is mapped, as proc_pid_maps(5) has it: in a shared object, its constants.
Nobody writes there: what is relocated stands in a segment of its own, further on in the file.
"""


def settle(maps: Path = MAPS) -> None:
    """Collect garbage a last time, keep the rest out of it, and give back what isn't needed, where `maps` says that."""
    gc.collect()
    gc.freeze()  # collecting it again and again took a tenth of the time
    if not maps.exists():
        return
    system = ctypes.CDLL(None)
    system.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for found in _READ_ONLY.finditer(maps.read_text()):
        start, end = (int(each, 16) for each in found.groups())
        system.madvise(start, end - start, DONT_NEED)
    if hasattr(system, "malloc_trim"):  # glibc's
        system.malloc_trim(0)
