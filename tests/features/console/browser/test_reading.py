"""Reading in a browser: words are found where they stand, answers are taken along, and small screens have room for them."""

import pytest
from playwright.sync_api import expect

from tests.features.console.browser.conftest import Open
from tests.support.console.samples import said
from tests.support.service.process import ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

WORDS_OF = """() => [...CSS.highlights.get('found') ?? []].map(String)"""
IS_SEEN = """() => {
    const [first] = CSS.highlights.get('found');
    const { top, bottom } = first.getBoundingClientRect();
    const box = document.querySelector('.reading').getBoundingClientRect();
    return box.top <= top && bottom <= box.bottom;
}"""


def test_the_browsers_own_search_finds_words_of_turns_that_were_not_scrolled_to(
    service: ServiceProcess, visit: Open
) -> None:
    id = said(service, "Where is the anvil?")
    for number in range(30):
        id = said(service, f"Question {number}. " + "Write much. " * 60, id)
    page = visit(service, f"#/c/{id}")
    expect(page.locator(".turn .item.user")).to_have_count(31)
    assert page.evaluate("document.querySelector('.reading').scrollTop") > 2_000
    assert page.evaluate("window.find('the anvil')")
    assert page.evaluate("getSelection().toString()") == "the anvil"


def test_a_found_conversation_opens_at_the_words_which_are_marked(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    middle = said(service, "Hello. " * 900 + "Where is the walrus? " + "Hello. " * 900, root)
    said(service, "Count to 3.", middle)
    page = visit(service)
    page.get_by_label("Find words or an id").fill("WALRUS? where")
    page.keyboard.press("Enter")
    found = page.locator(".trees a", has=page.locator("mark"))
    expect(found).to_have_count(1)
    with page.context.expect_page() as opened:
        found.click(modifiers=["Control"])
    other = opened.value
    expect(other.locator(".here .item.user")).to_contain_text("walrus")
    wait_until(lambda: other.evaluate(WORDS_OF)[:2] == ["Where", "walrus?"])
    assert other.evaluate(IS_SEEN)
    other.locator(".row").first.click()
    wait_until(lambda: other.evaluate(WORDS_OF) == [])
