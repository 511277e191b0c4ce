"""Twelve states of the console: each looks like its picture, and from 320 to 2,560 pixels, and at twice the size,
nothing is out of sight or cut without an ellipsis.
"""

import os
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser

from tests.support.console.states import HEIGHT, STATES, State, difference, expected, reached, seen
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients

WIDTHS = (320, 390, 680, 860, 1360, 2560)
"""680 is a window of 1,360 at twice the size."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
AT = "([left, top, right, bottom]) => document.elementFromPoint((left + right) / 2, (top + bottom) / 2)?.outerHTML"

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


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_state_looks_like_its_picture(
    service: ServiceProcess, browser: Browser, state: State, tmp_path: Path
) -> None:
    page = reached(browser, service.url, state)
    wanted, found = expected()[state.name], seen(page)
    where = difference(wanted, found)
    at = page.evaluate(AT, list(where)) if where else ""
    page.context.close()
    if not where:
        return
    both = Image.new("L", (2 * wanted.width + 4, wanted.height), 128)
    both.paste(wanted, (0, 0))
    both.paste(found, (wanted.width + 4, 0))
    file = Path(os.environ.get("CONSOLE_FAILURES", tmp_path)) / f"{state.name}.png"
    both.save(file)
    pytest.fail(
        f"differs within {where}; in {file} the picture is beside the page. If it shall look so, take the"
        f" pictures anew: python -m tests.support.console.states. In the middle is {at[:400]}"
    )


def test_a_difference_says_where_it_is() -> None:
    wanted = expected()["list"]
    moved = wanted.copy()
    assert difference(wanted, moved) is None
    moved.paste(128, (20, 30, 40, 34))
    assert difference(wanted, moved) == (160, 240, 320, 272)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_nothing_is_out_of_sight_or_cut_without_an_ellipsis(
    service: ServiceProcess, browser: Browser, state: State
) -> None:
    page = reached(browser, service.url, state)
    found = dict[int, object]()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.evaluate(DRAWN)
        found[width] = page.evaluate(OUT_OF_SIGHT)
    page.context.close()
    assert {width: each for width, each in found.items() if each} == {}
