"""The documents' language, as far as a program can check it. An editor reads for the rest: subject, verb, object."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.commands.command_line import app
from tests.support import ROOT
from tests.support.documents import DOCUMENTS, prose, read, rows

PAGES = [path for path in DOCUMENTS if path.parent.name != "decisions" and path.name != "CHANGELOG.md"]
DOCS = sorted(ROOT.glob("docs/*.md"))

MOST_PAGES = 25
MOST_CELL_CHARS = 200
MOST_SENTENCE_WORDS = 48
MOST_README_LINES, MOST_README_LINE_CHARS = 100, 200
LIST_CHARS = 60
"""The most text beside the names of a cell that is a list of names."""

LISTED_NAMES = 8
"""A sentence with so many names is a list of them."""

NOUNLESS = re.compile(r"(?:^|[.:;] |- |\d\. |\*\*)((?:What|Who|Whoever|That which)\b[^.?|]*[^?.|])(?:\.|$)")
FIGURES = re.compile(r"(?i)\bno use of\b|\bgoes? on with\b|\bas far as may be\b")
"""Words that readers read twice: name the act (count as use, continue)."""


def seen(text: str) -> str:
    """The text without the targets of its links."""
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> list[str]:
    """The sentences outside of blocks, tables and headings."""
    text = seen(re.sub(r"(?m)^(\||#|!|    ).*$", "", prose(text)))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*- )|\n(?=\d+\. )", text)
    return [each for words in paragraphs for each in re.split(r"(?<=[.;:?!]) ", " ".join(words.split())) if each]


def commands(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """The words of a command, and of each below it."""
    yield names
    for name, each in vars(command).get("commands", {}).items():
        yield from commands(each, *names, name)


def test_a_cell_of_a_table_is_read_at_once() -> None:
    for page in PAGES:
        for row in rows(page.read_text()):
            for cell in map(seen, row):
                is_list = len(re.sub(r"`[^`]*`", "", cell)) <= LIST_CHARS
                assert len(cell) <= MOST_CELL_CHARS or is_list, f"{page.name}: {len(cell)} characters: {cell}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_sentence_names_its_subject_and_ends_before_it_is_forgotten(page: Path) -> None:
    for sentence in sentences(page.read_text()):
        assert not NOUNLESS.match(sentence), f"name the noun: {sentence}"
        assert not FIGURES.search(sentence), sentence
        names = sentence.count("`") // 2
        words = re.sub(r"`[^`]*`,?", "", sentence).split()
        assert names >= LISTED_NAMES or len(words) <= MOST_SENTENCE_WORDS, f"{len(words)} words: {sentence}"


def test_readme_fits_a_minute_and_the_pages_are_no_more() -> None:
    lines = read("README.md").splitlines()
    assert len(lines) <= MOST_README_LINES
    assert max(map(len, lines)) <= MOST_README_LINE_CHARS
    assert len(DOCS) <= MOST_PAGES


@pytest.mark.parametrize("names", list(commands(get_command(app))), ids=" ".join)
def test_the_help_of_a_command_shows_placeholders_and_no_types_of_python(names: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*names, "--help"])
    assert shown.exit_code == 0
    assert not re.search(r"<\w+|list\[|[<>]=", shown.stdout)
