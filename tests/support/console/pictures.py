"""The pictures of docs/console.md and docs/cli.md: `python -m tests.support.console.pictures` takes them anew, in
Chromium and at a terminal.
"""

import re
import tempfile
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.text import Text

from tests.support import ROOT
from tests.support.console import administered
from tests.support.console.everything import fill_with_everything, serving_everything
from tests.support.console.samples import fill
from tests.support.service.process import ServiceProcess
from tests.support.service.terminal import at_a_terminal

PICTURES = ROOT / "docs" / "pictures"
WAIT_SECONDS = 10.0
WIDE = 156
"""As many columns as the longest line has: no line is cut in a picture."""

_FONTS = re.compile(r"\s*@font-face \{.*?\n    \}", re.DOTALL)
"""Fonts of another site; a reader has some."""

SIZE = {"width": 1360, "height": 800}

COLOURS = 128
"""So many are enough for a page, and take less than half the room of all."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        with serving_everything(Path(folder)) as service:
            searched = _searched(service, fill_with_everything(service))
            left, right = fill(service)
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            _take(page, f"{service.url}/console", ".trees li", "list")
            _take(page, f"{service.url}/console#/compare/{left}/{right}", ".side:last-child .item.assistant", "compare")
            page = browser.new_page(viewport=SIZE, color_scheme="dark", reduced_motion="reduce")
            _take(page, f"{service.url}/console#/c/{left}", ".item.assistant", "conversation")
            _take(page, f"{service.url}/console#/c/{searched}", ".here .sources", "calls")
            _take_terminal(Path(folder), service, [["ls"], ["tree", left]])
        service = ServiceProcess(Path(folder) / "administered", admin_key=administered.ADMIN_KEY)
        try:
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            _take_administration(page, service)
        finally:
            browser.close()
            service.stop()


def _searched(service: ServiceProcess, id: str) -> str:
    """The newest turn with a search among those before another."""
    found = service.client().responses.retrieve(id)
    while not any(each.type == "web_search_call" for each in found.output):
        assert found.previous_response_id
        found = service.client().responses.retrieve(found.previous_response_id)
    return found.id


def _take_administration(page: Page, service: ServiceProcess) -> None:
    """One project, as an administrator's key shows it."""
    project = administered.fill(service).project
    page.goto(f"{service.url}/console")
    page.get_by_label("API key").fill(administered.ADMIN_KEY)
    page.get_by_role("button", name="Open").click()
    page.get_by_role("region", name="Projects").wait_for()
    _take(page, f"{service.url}/console#/projects/{project}", ".chart", "administration")


def _take_terminal(folder: Path, service: ServiceProcess, commands: list[list[str]]) -> None:
    """What some commands show a person, with what was typed."""
    seen = Console(record=True, width=WIDE, file=StringIO(), force_terminal=True)
    for command in commands:
        with at_a_terminal(folder, *command, url=service.url) as terminal:
            terminal.end(WAIT_SECONDS)
            seen.print(f"$ harmonium {' '.join(command)}", style="bold", soft_wrap=True, highlight=False)
            seen.print(Text.from_ansi(terminal.raw.replace("\r\n", "\n")), soft_wrap=True)
    picture = seen.export_svg(title="harmonium", unique_id="cli-tree")
    (PICTURES / "cli-tree.svg").write_text(_FONTS.sub("", picture))


def _take(page: Page, url: str, there: str, name: str) -> None:
    page.goto(url)
    page.locator(there).first.wait_for()
    page.wait_for_load_state("networkidle")
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURES / f"console-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
