"""The console in a Chromium: how soon it shows something, and what a tab holds that is open for a working day.

What is done in a tab, and what a minute of it is, is in tests/support/console/tab.py. Never take a figure before the
garbage is collected.
"""

import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tests.support.console.tab import VISITED, Held, Tab, opened

CHROMIUM = Path("/usr/bin/chromium")

OPENINGS = 20
DAY_MINUTES = 480
"""A working day: the hours for which a tab is seen. One that isn't seen asks nothing."""

HOUR_MINUTES = 60
"""After so long a browser has compiled what it will, and it is told again and again what is held."""

PAINT_TARGET_MS = 500.0
"""When the first of it may be seen, the median of all openings."""

GROWTH_TARGET_BYTES = 1 << 20
"""The most by which the heap may be larger at the end of the day than after its first hour."""

NODES_TARGET = 50
"""The most nodes by which there may be more: some that a browser lets go of later, and less than one view has."""


class Found(NamedTuple):
    """When something was seen, in ms, and how much more is held at the end of a day than after its first hour."""

    paint: float
    grown: Held

    @property
    def met(self) -> bool:
        """Whether these are within the targets."""
        heap, nodes, listeners = self.grown
        return (
            self.paint <= PAINT_TARGET_MS and heap <= GROWTH_TARGET_BYTES and nodes <= NODES_TARGET and listeners <= 0
        )


def look(url: str, minutes: int) -> Found:
    """Print what the console of a service comes to. It should have trees, and take some time to count."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        paint, grown = _painted(browser, url), _held(browser, url, minutes)
        browser.close()
    return Found(paint, grown)


def _painted(browser: Browser, url: str) -> float:
    opened(browser, url)  # the browser's own start isn't the page's
    shown = [opened(browser, url) for _ in range(OPENINGS)]
    print("opened                p50 ms    the latest")
    for name, times in (
        ("the first of it", [each.first for each in shown]),
        ("the list", [each.list for each in shown]),
    ):
        print(f"{name:20} {median(times):7.0f}  {max(times):12.0f}")
    return median(each.first for each in shown)


def _held(browser: Browser, url: str, minutes: int) -> Held:
    began = time.monotonic()
    print("minutes in a tab      heap kB     nodes  listeners")
    minutes -= minutes % VISITED  # so that it ends behind a visit
    with Tab(browser, url) as tab:
        first = last = tab.held()
        for minute in range(1, minutes + 1):
            tab.minute()
            if minute % HOUR_MINUTES and minute != minutes:
                continue
            last = tab.held()
            first = last if minute <= HOUR_MINUTES else first
            print(f"{minute:16}  {last.heap / 1e3:11,.0f}  {last.nodes:8}  {last.listeners:9}", flush=True)
        requests = tab.requests
    print(f"{requests:,} requests to the console's API in {time.monotonic() - began:.0f} s")
    return Held(*(after - before for before, after in zip(first, last, strict=True)))
