"""A folder of documents: found by their words, shown as pages, and nothing beside them."""

import os
from pathlib import Path

import pytest

from service.features.browser.browser.page import Result
from service.features.browser.search.folder import ADDRESS, Folder
from service.features.browser.search.port import SearchFailure, SearchQuery


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    (folder / "sea").mkdir(parents=True)
    (folder / "sea" / "tides in brest.html").write_text(
        "<title>Tides in Brest</title><nav>menu</nav><p>High waters at ten. <a href=../moon.md>Moon</a>"
    )
    (folder / "moon.md").write_text("Intro\n\n# The moon\n\nIt makes tides.")
    (folder / "notes.txt").write_text("nothing here")
    (folder / "picture.png").write_bytes(b"tides")
    (tmp_path / "outside.txt").write_text("tides secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    return folder


async def test_documents_are_found_by_forms_of_their_words(documents: Path) -> None:
    found = await Folder(documents).search(SearchQuery("high water?"))

    assert found[0] == Result(f"{ADDRESS}sea/tides%20in%20brest.html", "Tides in Brest", "High waters at ten. Moon")
    assert [result.title for result in await Folder(documents).search(SearchQuery("TIDE"))] == [
        "Tides in Brest",
        "The moon",
    ]


@pytest.mark.parametrize("text", ["", "?!", "qwertz", '" OR 1', "menu"])
async def test_what_stands_nowhere_is_not_found(documents: Path, text: str) -> None:
    assert await Folder(documents).search(SearchQuery(text)) == []


async def test_a_document_is_a_page_whose_links_lead_on(documents: Path) -> None:
    folder = Folder(documents, "https://docs.example/x")
    page = await folder.page("https://docs.example/x/sea/tides%20in%20brest.html#part")
    other = await folder.page(page.links[0])

    assert page.text.endswith("High waters at ten. 【0†Moon】")
    assert (other.title, other.url) == ("The moon", "https://docs.example/x/moon.md")
    assert "<nav>" in (await folder.page(f"view-source:{page.url}")).text


@pytest.mark.parametrize(
    "path", ["../outside.txt", "link.txt", "picture.png", "%2e%2e/outside.txt", "sea", "", "/etc/passwd", "missing.md"]
)
async def test_nothing_beside_the_documents_is_opened(documents: Path, path: str) -> None:
    with pytest.raises(SearchFailure, match="no such document"):
        await Folder(documents).page(f"{ADDRESS}{path}")


async def test_other_addresses_and_domains_are_refused(documents: Path) -> None:
    folder = Folder(documents)
    with pytest.raises(SearchFailure, match="no such document"):
        await folder.page("https://tides.example/")
    with pytest.raises(SearchFailure, match="allowed domain"):
        await folder.page(f"{ADDRESS}moon.md", ("tides.example",))
    assert await folder.search(SearchQuery("tides", ("tides.example",))) == []


async def test_what_has_changed_is_found(documents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.features.browser.search.folder.LOOK_SECONDS", -1.0)
    folder = Folder(documents)
    assert await folder.search(SearchQuery("harbour")) == []

    (documents / "notes.txt").write_text("a harbour")
    os.utime(documents / "notes.txt", (1, 1))
    assert [result.title for result in await folder.search(SearchQuery("harbour"))] == ["notes.txt"]
    (documents / "notes.txt").unlink()
    assert await folder.search(SearchQuery("harbour")) == []
