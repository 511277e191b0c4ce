"""Whatever is put, deleted and listed, in whatever order: an archive is a dict whose changes have conditions."""

import pytest

from tests.support.archive.model import agree
from tests.support.archive.opened import REMOTE, Place

SHORT, LONG = 10, 400
"""Examples without a server in between; with one there are a tenth of them."""


def test_an_archive_is_a_dict(place: Place) -> None:
    agree(place, SHORT // 10 if place.kind in REMOTE else SHORT)


@pytest.mark.full
def test_an_archive_is_a_dict_after_many_more_steps(place: Place) -> None:
    agree(place, LONG // 10 if place.kind in REMOTE else LONG)
