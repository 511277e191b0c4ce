"""The formats and the types of what is stored are those of the newest fixtures: a change of one makes new fixtures."""

import re
import sqlite3
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
import pytest

from store.backup.archiving.parts import folder_of
from store.files.files import PIECE_BYTES
from tests.support import ROOT
from tests.support.releases.formats import formats
from tests.support.releases.shapes import shapes
from tests.support.releases.stored import DATA, Release, releases

PRIVATE = re.compile(rb"/(?:tmp|root|home|work|Users)/[\w.-]+")
"""A path of the machine that made them."""


def test_the_newest_fixtures_have_each_format_of_the_code() -> None:
    made = releases()[-1].manifest["formats"]
    assert formats() == made, "make the fixtures of this release: python -m tests.support.releases.making"
    assert len(made) > 10


def test_the_newest_fixtures_have_the_shape_of_each_stored_type() -> None:
    made, now = releases()[-1].manifest.get("shapes", {}), shapes()
    changed = sorted(name for name in made.keys() | now.keys() if made.get(name) != now.get(name))
    assert not changed, (
        f"stored types have changed: {', '.join(changed)}. If an older release misreads the new form, or drops what is "
        "new in it when it writes, raise the number of its format, or LAYOUT in store/layout.py. The new code has to "
        "read the old form. Then make the fixtures of this release: python -m tests.support.releases.making"
    )


def test_the_newest_fixtures_have_what_is_stored_in_several_values_and_what_has_failed() -> None:
    newest = releases()[-1]
    answers = {read["path"]: read["answer"] for read in newest.manifest["reads"]}
    assert answers[f"/v1/responses/{newest.made('failed')}"]["status"] == "failed"
    assert PIECE_BYTES < answers[f"/v1/files/{newest.made('large-file')}"]["bytes"] < 2 * PIECE_BYTES
    with closing(sqlite3.connect(f"file:{newest.folder}/{DATA}/archive/00.db?immutable=1", uri=True)) as opened:
        keys = {key for (key,) in opened.execute("SELECT key FROM object")}
    folder = folder_of("globex", newest.made("large").removeprefix("resp_"))
    assert {key for key in keys if key.startswith(folder)} == {f"{folder}0", f"{folder}1"}


def test_whatever_msgpack_is_read_as_is_a_stored_type() -> None:
    reader = re.compile(r"(?:msgpack\.Decoder\(|msgpack\.decode\(.*type=|\bdecode_record\(\w+, )(\w+)")
    sources = [path.read_text() for package in ("service", "store") for path in (ROOT / package).rglob("*.py")]
    read = {name for text in sources for name in reader.findall(text)}
    assert "FileRecord" in read
    assert read - shapes().keys() == {"Messages", "tuple"}, "add these to STORED in tests/support/releases/shapes.py"


class Inner(msgspec.Struct):
    """A stored type in another one."""

    name: str


class Pair(NamedTuple):
    """A stored type that is a tuple."""

    one: int
    inner: Inner


def stored(*members: Any, **options: Any) -> dict[str, str]:
    """The shape of a type with these members, and of those in it."""
    return shapes([msgspec.defstruct("Stored", [("id", str), *members], **options)])


CHANGES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("no member", [], {}),
    ("a member", [("size", int)], {}),
    ("one of another name", [("bytes", int)], {}),
    ("one of another type", [("size", int | None)], {}),
    ("one with a default", [("size", int, 0)], {}),
    ("one with another default", [("size", int, 1)], {}),
    ("one with a default of None", [("size", int | None, None)], {}),
    ("one that is stored under another name", [("size", int)], {"rename": "upper"}),
    ("an array", [("size", int)], {"array_like": True}),
    ("a tag", [("size", int)], {"tag": "stored"}),
    ("a type in it", [("size", Inner)], {}),
]


def test_each_change_of_a_stored_type_changes_its_shape() -> None:
    found = {label: stored(*members, **options)["Stored"] for label, members, options in CHANGES}
    assert len(set(found.values())) == len(CHANGES), found
    assert stored(("size", int)) == stored(("size", int))


def test_types_in_a_stored_type_have_shapes_too() -> None:
    assert stored(("pairs", list[Pair] | None, None)).keys() == {"Stored", "Pair", "Inner"}


@pytest.mark.parametrize("release", releases(), ids=lambda each: each.name)
def test_fixtures_say_nothing_of_the_machine_that_made_them(release: Release) -> None:
    for path in release.folder.rglob("*"):
        if path.is_file():
            assert PRIVATE.findall(path.read_bytes()) == [], path
