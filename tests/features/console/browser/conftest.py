"""The console in a real Chromium. A page that violates its policy, or throws, fails its test."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.support.service.process import Served

NEEDS = {"chromium": "chromium"}
CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 15_000
WIDTH, HEIGHT = 1360, 860

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module; each test has pages of its own. As long as it lives, no test can run an event loop."""
    if not Path(CHROMIUM).exists():
        pytest.skip("needs Chromium; scripts/test --clients installs it on Debian")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """Contexts, each of one person, and what their pages complained of."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def page(self, **options: object) -> Page:
        """A page in a context of its own."""
        context = self._browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, locale="en-GB", timezone_id="UTC", **options
        )
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        """Refused requests are what a test may want; the browser tells of them by itself."""
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens the console of a service: `visit(service, "#/c/resp_…")`. A failed test leaves a picture, where
    CONSOLE_FAILURES names a folder.
    """
    watched, last = Watched(browser), list[Page]()

    def opened(service: Served, place: str = "", **options: object) -> Page:
        page = watched.page(**options)
        last.append(page)
        page.goto(f"{service.url}/console{place}")
        return page

    yield opened
    if (folder := os.environ.get("CONSOLE_FAILURES")) and last:
        last[-1].screenshot(path=Path(folder) / f"{request.node.name}.png")
    watched.close()
    assert watched.complaints == []
