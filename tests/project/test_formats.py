"""The formats of what is stored are those of the newest fixtures: a change of one comes with fixtures of its own."""

import re

import pytest

from tests.support.releases.formats import formats
from tests.support.releases.stored import Release, releases

PRIVATE = re.compile(rb"/(?:tmp|root|home|work|Users)/[\w.-]+")
"""A path of the machine that made them."""


def test_the_newest_fixtures_have_each_format_of_the_code() -> None:
    made = releases()[-1].manifest["formats"]
    assert formats() == made, "make the fixtures of this release: python -m tests.support.releases.making"
    assert len(made) > 10


@pytest.mark.parametrize("release", releases(), ids=lambda each: each.name)
def test_fixtures_say_nothing_of_the_machine_that_made_them(release: Release) -> None:
    for path in release.folder.rglob("*"):
        if path.is_file():
            assert PRIVATE.findall(path.read_bytes()) == [], path
