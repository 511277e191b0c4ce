"""Whoever doesn't see the page, or uses no mouse: axe finds nothing, in light and dark, and dialogs keep the focus."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.conftest import Open
from tests.support.console.samples import fill
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients


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
    page.goto(f"{service.url}/console#/c/resp_{'0' * 48}")
    expect(page.get_by_role("alert")).to_be_visible()
    assert complaints(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_a_key_is_asked_for(tenants: ServiceProcess, visit: Open, scheme: str) -> None:
    page = visit(tenants, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    expect(page.get_by_label("API key")).to_be_focused()
    assert complaints(page) == []


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
