"""Whoever doesn't see the page, uses no mouse, or has a small screen: axe finds nothing, in light and dark, dialogs
keep the focus, and from 320 to 2,560 pixels, and at twice the size, nothing is out of sight or cut without an ellipsis.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.features.console.browser.conftest import HEIGHT, Open
from tests.support.console.samples import fill, said
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients

WIDTHS = (320, 390, 680, 1360, 2560)
"""680 is a window of 1,360 at twice the size."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
WORD = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
OUT_OF_SIGHT = """() => {
    const found = [];
    const page = document.documentElement;
    const styleOf = (each) => getComputedStyle(each);
    const isClipped = (each) => each && (styleOf(each).clipPath !== 'none' || isClipped(each.parentElement));
    const isHidden = (each) => each.closest('[aria-hidden=true], svg, option') || !each.checkVisibility();
    const isClosed = (each) => ['hidden', 'clip'].includes(styleOf(each).overflowX);
    const isWide = (each) => each.scrollWidth > each.clientWidth + 1;
    const hasEllipsis = (each) => styleOf(each).textOverflow === 'ellipsis';
    const isScrolled = (each) => ['auto', 'scroll'].includes(styleOf(each).overflowX) && isWide(each);
    const isHeld = (each) => each && (isScrolled(each) || hasEllipsis(each) || isHeld(each.parentElement));
    const add = (what, each) => found.push(`${what}: ${each.outerHTML.slice(0, 160)}`);
    if (page.scrollWidth > page.clientWidth) found.push(`the page is ${page.scrollWidth} wide`);
    for (const each of document.querySelectorAll('body *')) {
        if (!each.textContent.trim() || isHidden(each) || isClipped(each)) continue;
        if (isClosed(each) && isWide(each) && !hasEllipsis(each)) add('cut', each);
        const { left, right } = each.getBoundingClientRect();
        if ((right > page.clientWidth + 1 || left < -1) && !isHeld(each.parentElement)) add('outside', each);
        if (each.matches('main, .reading, .side, .graph, .detail, dialog') && isWide(each)) add('scrolls', each);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, str, str]]:
    """A service with conversations, and two turns of one."""
    service = ServiceProcess(Path(tmp_path_factory.mktemp("full")))
    yield (service, *fill(service))
    service.stop()


def complaints(page: Page) -> list[Any]:
    """What axe has against the page as it is."""
    found = Axe().run(page).response["violations"]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_view(full: tuple[ServiceProcess, str, str], visit: Open, scheme: str) -> None:
    service, left, right = full
    page = visit(service, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)  # axe is a script of another
    expect(page.locator(".trees li").first).to_be_visible()
    assert complaints(page) == []
    page.locator("input[type=file]").set_input_files({"name": "a", "mimeType": "", "buffer": b'{"turn":""}\n?'})
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator(".outcome li")).to_be_visible()
    assert complaints(page) == []
    page.get_by_label("Status").select_option("failed")
    expect(page.locator(".empty")).to_be_visible()
    assert complaints(page) == []
    page.get_by_role("link", name="New conversation").click()
    page.get_by_text("The same as curl").click()
    expect(page.locator(".code .text")).to_be_visible()
    assert complaints(page) == []
    page.goto(f"{service.url}/console#/c/{right}")
    expect(page.locator(".here .item.assistant")).to_be_visible()
    assert complaints(page) == []
    for name in ("Events", "Tokens", "JSON", "curl"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator(".panel .text, .log li, .token").first).to_be_visible()
        assert (name, complaints(page)) == (name, [])
    page.locator(".here").get_by_role("button", name="Edit and fork").click()
    assert complaints(page) == []
    page.locator(".here").get_by_role("button", name="Compare").click()
    assert complaints(page) == []
    page.locator(".here").get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    assert complaints(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.goto(f"{service.url}/console#/compare/{left}/{right}")
    expect(page.locator(".side .item.assistant").last).to_be_visible()
    assert complaints(page) == []


@pytest.mark.parametrize("place", ["#/", "#/new", "#/c/{left}", "#/compare/{left}/{long}"])
def test_nothing_is_out_of_sight_or_cut_without_an_ellipsis(
    full: tuple[ServiceProcess, str, str], visit: Open, place: str
) -> None:
    service, left, _ = full
    page = visit(service, place.format(left=left, long=said(service, f"{WORD} and a word. " * 9, left)))
    page.wait_for_load_state("networkidle")
    found = dict[int, object]()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.evaluate(DRAWN)
        found[width] = page.evaluate(OUT_OF_SIGHT)
    assert {width: each for width, each in found.items() if each} == {}


def test_a_conversation_is_opened_and_continued_by_keys_alone(
    full: tuple[ServiceProcess, str, str], visit: Open
) -> None:
    page = visit(full[0])
    expect(page.locator(".trees li").first).to_be_visible()
    for _ in range(40):
        if page.evaluate("document.activeElement.closest('.trees') !== null"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".here .item.assistant").wait_for()
    for _ in range(40):
        if page.evaluate("document.activeElement.textContent") == "Continue from here":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("Count to 2.")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".row.selected")).to_contain_text("Count to 2.")
    expect(page.locator("[aria-live=polite]")).to_have_text("The response is completed.")
