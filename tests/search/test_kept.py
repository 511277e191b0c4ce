"""Pages that were opened lately."""

from service.browser.page import Page, page_of
from service.search.port import OWN_CHARS, KeptPages, Opened


def at(url: str, tenant: str = "one") -> Opened:
    """A tenant that opened a page at an address."""
    return Opened(tenant, (), url)


def page(text: str) -> Page:
    return page_of("https://tides.example/", "Tides", text)


def test_a_tenant_has_its_own_pages() -> None:
    kept = KeptPages()
    kept.put(at("u"), page("x"))

    assert kept.get(at("u")) == page("x")
    assert kept.get(at("u", "two")) is None
    assert kept.get(at("u")._replace(domains=("example",))) is None


def test_a_page_is_kept_for_a_while() -> None:
    kept = KeptPages(seconds=-1)
    kept.put(at("u"), page("x"))

    assert kept.get(at("u")) is None


def test_those_that_nobody_came_back_to_make_room() -> None:
    kept = KeptPages(chars=3 * (page("").size + OWN_CHARS) + 300)
    for url in "abc":
        kept.put(at(url), page("x" * 100))
    assert kept.get(at("a")) is not None
    kept.put(at("d"), page("x" * 100))

    assert [url for url in "abcd" if kept.get(at(url))] == ["a", "c", "d"]
    kept.put(at("a"), page("y"))
    assert kept.get(at("a")) == page("y")
    kept.put(at("huge"), page("x" * 10_000))
    assert kept.get(at("huge")) is None


def test_a_page_takes_room_though_it_has_no_text() -> None:
    kept = KeptPages(chars=100 * OWN_CHARS)
    for number in range(200):
        kept.put(at(f"{number}"), page(""))
    linked = page_of("https://tides.example/", "Tides", "x", ["https://tides.example/" + "x" * 1_000] * 100)
    kept.put(at("linked"), linked)

    assert sum(kept.get(at(f"{number}")) is not None for number in range(200)) < 100
    assert kept.get(at("linked")) is None
