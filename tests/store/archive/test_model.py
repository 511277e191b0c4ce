"""Whatever is put, deleted and listed, in whatever order: an archive is a dict whose changes have conditions."""

import pytest

from tests.support.archive.model import agree
from tests.support.archive.opened import REMOTE, Place
from tests.support.lengths import lengths


@pytest.mark.parametrize("examples", lengths(10, 400))
def test_an_archive_is_a_dict(place: Place, examples: int) -> None:
    agree(place, examples // 10 if place.kind in REMOTE else examples)  # with a server in between
