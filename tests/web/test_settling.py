"""Memory that a process gives back once it has loaded everything."""

import gc
import mmap
import re
from pathlib import Path

import pytest

from service.web.settling import MAPS, settle

FILE_BYTES = 8 << 20


def resident_bytes(file: Path) -> int:
    """How much of a mapped file is in this process's memory."""
    parts = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    (part,) = (each for each in parts if each.partition("\n")[0].endswith(f" {file}"))
    return int(part.partition("Rss:")[2].split()[0]) * 1024


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "constants"
    path.write_bytes(b"read once" * (FILE_BYTES // 9))
    return path


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux says what is mapped")
def test_a_file_that_was_read_through_is_given_back_and_can_be_read_again(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
        assert mapped[:].count(b"once") == FILE_BYTES // 9
        assert resident_bytes(file) > FILE_BYTES / 2

        settle()

        assert resident_bytes(file) == 0
        assert mapped[:].count(b"once") == FILE_BYTES // 9


@pytest.mark.skipif(not MAPS.exists(), reason="only Linux says what is mapped")
def test_what_was_written_into_a_mapped_file_stays(file: Path) -> None:
    with file.open("rb") as opened:
        writable = mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        with writable as mapped:
            mapped[:5] = b"WRITE"
            settle()
            assert mapped[:9] == b"WRITEonce"


def test_what_is_there_is_no_longer_looked_at_for_garbage(tmp_path: Path) -> None:
    kept: list[object] = [[]]
    settle(tmp_path / "none")  # as where the system doesn't say
    try:
        assert not any(each is kept for each in gc.get_objects())
    finally:
        gc.unfreeze()
