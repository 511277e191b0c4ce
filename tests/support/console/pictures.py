"""The pictures of docs/console.md: `python -m tests.support.console.pictures` takes them anew, in Chromium."""

import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.support import ROOT
from tests.support.console import administered
from tests.support.console.samples import fill
from tests.support.service.process import ServiceProcess

PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1360, "height": 800}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = ServiceProcess(Path(folder))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            left, right = fill(service)
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            _take(page, f"{service.url}/console", ".trees li", "list")
            _take(page, f"{service.url}/console#/compare/{left}/{right}", ".side:last-child .item.assistant", "compare")
            page = browser.new_page(viewport=SIZE, color_scheme="dark", reduced_motion="reduce")
            _take(page, f"{service.url}/console#/c/{left}", ".item.assistant", "conversation")
            service.stop()
            service = ServiceProcess(Path(folder) / "administered", admin_key=administered.ADMIN_KEY)
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            _take_administration(page, service)
        finally:
            browser.close()
            service.stop()


def _take_administration(page: Page, service: ServiceProcess) -> None:
    """One project, as an administrator's key shows it."""
    project = administered.fill(service).project
    page.goto(f"{service.url}/console")
    page.get_by_label("API key").fill(administered.ADMIN_KEY)
    page.get_by_role("button", name="Open").click()
    page.get_by_role("region", name="Projects").wait_for()
    _take(page, f"{service.url}/console#/projects/{project}", ".chart", "administration")


def _take(page: Page, url: str, there: str, name: str) -> None:
    page.goto(url)
    page.locator(there).first.wait_for()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / f"console-{name}.png")


if __name__ == "__main__":
    main()
