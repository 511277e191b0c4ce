"""Citations in an answer: files that code has written, found in the text however it comes."""

import re
from collections.abc import Callable
from itertools import product
from time import process_time
from typing import Any
from urllib.parse import quote

import pytest

from service.features.browser.citing import FileCiting

PLOT = {"container_id": "cntr_1", "file_id": "cfile_1", "filename": "plot.png"}
NAMES = (
    *("plot.png", "my data/a b.csv", "a b(1).txt", "a", "a.tar", "a.tar.gz", "[x](y).md", "élan 🙂.txt", "50%41.txt"),
    *("*_`b`_*.txt", "x&y=1;2.txt", 'q"s.txt', "f."),
)
FILES = {
    f"/mnt/data/{name}": PLOT if name == "plot.png" else {**PLOT, "file_id": name, "filename": name} for name in NAMES
}


def escaped(name: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(name))


def cited(*pieces: str) -> list[tuple[str, str]]:
    """What is cited in a text that comes in these pieces: its words, and the file."""
    citing, text = FileCiting(FILES), "".join(pieces)
    found = [each for piece in pieces for each in citing.take(piece)] + list(citing.rest())
    assert "".join(each.text for each in found) == text
    notes: list[dict[str, Any]] = [each.annotation for each in found if each.annotation]
    return [(text[note["start_index"] : note["end_index"]], note["file_id"]) for note in notes]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("See [it](sandbox:/mnt/data/plot.png) here.", ["sandbox:/mnt/data/plot.png"]),
        ("sandbox:/mnt/data/plot.png", ["sandbox:/mnt/data/plot.png"]),
        ("It is at sandbox:/mnt/data/plot.png.", ["sandbox:/mnt/data/plot.png"]),
        ("é 🙂 sandbox:/mnt/data/my%20data/a%20b.csv!", ["sandbox:/mnt/data/my%20data/a%20b.csv"]),
        ("sandbox:sandbox:/mnt/data/plot.png sandbox:/mnt/data/plot.png", ["sandbox:/mnt/data/plot.png"] * 2),
        ("sandbox:/mnt/data/other.png", []),
        ("sandbox:/mnt/data/", []),
        ("/mnt/data/plot.png sandbox:/mnt/plot.png", []),
        ("sandbox:/mnt/data/" + "x" * 5000, []),
    ],
)
def test_links_to_files_that_are_there_are_cited_wherever_the_text_is_cut(text: str, words: list[str]) -> None:
    whole = cited(text)

    assert [said for said, _ in whole] == words
    assert cited(*text) == whole


@pytest.mark.parametrize("form", [str, quote, lambda name: quote(name, safe="/;,?:@&=+$-_.!~*'()#"), escaped])
def test_a_file_of_any_name_is_cited_as_links_have_it(form: Callable[[str], str]) -> None:
    for name, around in product(
        NAMES, ("[it]({})", "{}", "See {}.", "**{}**", "<{}>", "{}, {}; {}:", "({}) '{}'", "{}\n")
    ):
        link = f"sandbox:/mnt/data/{form(name)}"
        text = around.replace("{}", link)
        file = FILES[f"/mnt/data/{name}"]["file_id"]

        assert cited(*text) == cited(text) == [(link, file)] * around.count("{}")


def test_a_file_is_not_cited_by_the_beginning_of_another_name() -> None:
    for link in ("a.tar.bz2", "plot.png.bak", "plot.png/x", "a-1", "plot.pngé", "aa", "50A.txt", "f.x"):
        assert cited(f"[it](sandbox:/mnt/data/{link}) is new.") == []


def test_a_long_text_with_many_links_takes_little_time() -> None:
    files = {f"/mnt/data/{'x' * (number % 200)}{number}.txt": PLOT for number in range(6_400)}
    citing = FileCiting(files)
    begun = process_time()
    for _ in range(4_000):
        for piece in ("sandbox:", "/mnt", "/data/", "xxxx", "xx", "1", "0", ".txt", "....", " "):
            citing.take(piece)

    assert process_time() - begun < 5
