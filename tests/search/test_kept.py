"""Pages that were opened lately."""

from service.browser.page import Page, page_of
from service.search.kept import KeptPages


def page(text: str) -> Page:
    """A page with this text."""
    return page_of("https://tides.example/", "Tides", text)


def test_a_tenant_has_its_own_pages() -> None:
    kept = KeptPages()
    kept.put("one", "u", page("x"))

    assert kept.get("one", "u") == page("x")
    assert kept.get("two", "u") is None


def test_a_page_is_kept_for_a_while() -> None:
    kept = KeptPages(seconds=-1)
    kept.put("one", "u", page("x"))

    assert kept.get("one", "u") is None


def test_those_that_nobody_came_back_to_make_room() -> None:
    kept = KeptPages(chars=3 * len(page("").text) + 300)
    for url in "abc":
        kept.put("one", url, page("x" * 100))
    assert kept.get("one", "a") is not None
    kept.put("one", "d", page("x" * 100))

    assert [url for url in "abcd" if kept.get("one", url)] == ["a", "c", "d"]
    kept.put("one", "a", page("y"))
    assert kept.get("one", "a") == page("y")
    kept.put("one", "huge", page("x" * 1_000))
    assert kept.get("one", "huge") is None
