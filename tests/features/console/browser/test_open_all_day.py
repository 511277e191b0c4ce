"""A tab of the console that is open for long: its views leave nothing behind."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.features.console.browser.conftest import Open
from tests.support.console.samples import said
from tests.support.service.beside import ServiceBeside

VISITS = 6
"""How often each view is seen between two looks at what is held."""

MOST_NODES = 50
"""Some that a browser lets go of later; a view that was kept has more."""

pytestmark = pytest.mark.clients


def test_a_tab_that_is_open_for_long_holds_no_more_by_that(beside: Callable[..., ServiceBeside], visit: Open) -> None:
    service = beside()
    root = said(service, "My name is Ada.")
    leaf = said(service, "Count to 20.", root, background=True)
    page = visit(service)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    held = list[tuple[int, int]]()
    for _ in range(3):  # the first is no measure, as the browser warms up
        for _ in range(VISITS):
            page.locator(".trees a").first.click()
            for tab, shown in (("Tokens", ".token"), ("JSON", ".code .text"), ("Items", ".here .item.user")):
                page.get_by_role("tab", name=tab).click()
                expect(page.locator(shown).first).to_be_visible()
            page.goto(f"{service.url}/console#/compare/{root}/{leaf}")
            expect(page.locator(".side .item.assistant").first).to_be_visible()
            page.goto(f"{service.url}/console#/")
            expect(page.locator(".trees li")).to_have_count(1)
        session.send("HeapProfiler.collectGarbage")
        told = {each["name"]: int(each["value"]) for each in session.send("Performance.getMetrics")["metrics"]}
        held.append((told["Nodes"], told["JSEventListeners"]))
    _, (nodes, listeners), (nodes_later, listeners_later) = held
    assert nodes_later - nodes <= MOST_NODES
    assert listeners_later <= listeners
