"""What a console that was just opened shows how soon, and what one holds that is open for long."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, expect

from tests.console.conftest import Open
from tests.support.console.samples import said
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients

PAINTED_MS = 500
"""What may pass before the first of it is seen, on the machine of the service."""

PAINTED = (
    "() => performance.getEntriesByType('paint').find((each) => each.name === 'first-contentful-paint')?.startTime"
)
VISITS = 12
"""How often each view is seen between two looks at what is held."""

MOST_NODES = 50
"""Some that a browser lets go of later; a view that was kept has more."""


def test_the_first_of_it_is_seen_within_half_a_second(service: ServiceProcess, browser: Browser) -> None:
    said(service, "My name is Ada.")
    painted = list[float]()
    for _ in range(4):  # the browser's own start isn't the page's
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(f"{service.url}/console")
            painted.append(page.wait_for_function(PAINTED).json_value())
    assert min(painted) <= PAINTED_MS


def test_a_tab_that_is_open_for_long_holds_no_more_by_that(start: Callable[..., ServiceProcess], visit: Open) -> None:
    service = start()
    root = said(service, "My name is Ada.")
    leaf = said(service, "Count to 20.", root, background=True)
    page = visit(service)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    found = list[tuple[int, int]]()
    for _ in range(3):
        for _ in range(VISITS):
            page.locator(".trees a").first.click()
            for tab, shown in (("Tokens", ".token"), ("JSON", ".code .text"), ("Items", ".here .item.user")):
                page.get_by_role("tab", name=tab).click()
                expect(page.locator(shown).first).to_be_visible()
            page.goto(f"{service.url}/console#/compare/{root}/{leaf}")
            expect(page.locator(".side .item.assistant").first).to_be_visible()
            page.goto(f"{service.url}/console#/")
            page.get_by_role("button", name="Refresh").click()
            expect(page.locator(".trees li")).to_have_count(1)
        session.send("HeapProfiler.collectGarbage")
        told = {each["name"]: int(each["value"]) for each in session.send("Performance.getMetrics")["metrics"]}
        found.append((told["Nodes"], told["JSEventListeners"]))
    _, (warm, later) = pairwise(found)
    assert later[0] - warm[0] <= MOST_NODES
    assert later[1] <= warm[1]
