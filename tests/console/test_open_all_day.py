"""What a console that was just opened shows how soon, and what one holds that is open for long."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from tests.support.console.samples import said
from tests.support.console.tab import Tab, opened
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients

START = Callable[..., ServiceProcess]

PAINTED_MS = 500
"""What may pass before the first of it is seen, on the machine of the service."""

WARM_MINUTES = 9
"""After so long a browser holds most of what it will of the page's code; the rest comes within an hour."""

MINUTES = 30
"""Bytes: a page that kept what it is answered would have grown by more."""

MOST_NODES = 50
"""Some that a browser lets go of later; a view that was kept has more."""


def test_the_first_of_it_is_seen_within_half_a_second(service: ServiceProcess, browser: Browser) -> None:
    said(service, "My name is Ada.")
    opened(browser, service.url)  # the browser's own start isn't the page's
    assert min(opened(browser, service.url).first for _ in range(3)) <= PAINTED_MS


def test_a_tab_that_is_open_for_half_an_hour_holds_no_more_by_that(start: START, browser: Browser) -> None:
    service = start(demo_tokens_per_second=100)
    with Tab(browser, service.url) as tab:
        for _ in range(WARM_MINUTES):
            tab.minute()
        before = tab.held()
        for _ in range(MINUTES):
            tab.minute()
        after = tab.held()
    assert after.listeners <= before.listeners
    assert after.nodes - before.nodes <= MOST_NODES
