"""Reading in a browser: words are found where they stand, answers are taken along, and small screens have room."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.features.console.browser.conftest import Open
from tests.features.console.browser.test_accessible import complaints
from tests.support.console.samples import WEATHER, said
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import ACME_KEY, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

BESIDE = Callable[..., ServiceBeside]

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
    wait_until(lambda: page.evaluate("document.querySelector('.reading').scrollTop") > 2_000)
    page.keyboard.press("Control+f")
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
    wait_until(lambda: other.evaluate(WORDS_OF)[:2] == ["Where", "walrus"])
    wait_until(lambda: other.evaluate(IS_SEEN))
    other.locator(".row").first.click()
    wait_until(lambda: other.evaluate(WORDS_OF) == [])


def test_words_of_an_earlier_turn_are_marked_where_a_conversation_opens_at_its_end(
    service: ServiceProcess, visit: Open
) -> None:
    id = said(service, "Where is the heron?")
    for number in range(20):
        id = said(service, f"Where is number {number}? " + "Write much. " * 60, id)
    page = visit(service, f"#/c/{id}/heron%20where")
    expect(page.locator(".turn .item.user")).to_have_count(21)
    wait_until(lambda: page.evaluate(WORDS_OF)[:2] == ["Where", "heron"])
    wait_until(lambda: page.evaluate(IS_SEEN))


def test_an_answer_a_turn_and_a_link_are_copied_and_a_conversation_is_saved_as_a_text(
    service: ServiceProcess, visit: Open
) -> None:
    root = said(service, "My name is Ada.", tools=[WEATHER])
    leaf = said(service, "What is my name?", root)
    page = visit(service, f"#/c/{leaf}", permissions=["clipboard-read", "clipboard-write"])
    here, copied = page.locator(".here"), "navigator.clipboard.readText()"
    for label, text in (
        ("Copy", "Your name is Ada."),
        ("Markdown", "## User\n\nWhat is my name?\n\n"),
        ("Link", f"{service.url}/console#/c/{leaf}"),
    ):
        here.get_by_role("button", name=label, exact=True).click()
        wait_until(lambda text=text: page.evaluate(copied).startswith(text))
    with page.expect_download() as download:
        page.locator(".heading").get_by_role("button", name="Markdown").click()
    assert download.value.suggested_filename == f"{leaf}.md"
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0] == "# My name is Ada."
    assert [line for line in lines if line.startswith("## ")] == ["## User", "## Assistant"] * 2


def test_a_tool_that_was_left_out_is_named_below_its_turn(service: ServiceProcess, visit: Open) -> None:
    page = visit(service, "#/new")
    page.get_by_label("More tools").fill('[{"type": "web_search"}]')
    page.get_by_label("Message").fill("My name is Ada.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".here .items")).to_contain_text("Not served here, and left out: web_search.")


def test_a_new_tab_has_the_key_of_another_and_all_forget_it_together(tenants: ServiceProcess, visit: Open) -> None:
    id = said(tenants, "I am of acme.", key=ACME_KEY)
    page = visit(tenants)
    page.get_by_label("API key").fill(ACME_KEY)
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".trees li").first).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{tenants.url}/console#/c/{id}")
    expect(other.locator(".here .item.user")).to_contain_text("I am of acme.")
    assert other.evaluate("localStorage.getItem('harmonium.key')") is None
    page.get_by_role("button", name="Forget the key").click()
    expect(other.get_by_label("API key")).to_be_visible()
    assert [each.evaluate("sessionStorage.length") for each in (page, other)] == [0, 0]
    third = page.context.new_page()
    third.goto(f"{tenants.url}/console")
    expect(third.get_by_label("API key")).to_be_visible()


def test_a_tab_that_was_elsewhere_when_the_key_was_forgotten_has_it_no_more(
    tenants: ServiceProcess, visit: Open
) -> None:
    page = visit(tenants)
    page.get_by_label("API key").fill(ACME_KEY)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{tenants.url}/console")
    expect(other.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()
    other.goto("about:blank")
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    other.goto(f"{tenants.url}/console")
    expect(other.get_by_label("API key")).to_be_visible()
    assert other.evaluate("sessionStorage.length") == 0


def test_no_words_are_left_in_the_page_when_the_key_is_forgotten(beside: BESIDE, visit: Open) -> None:
    service = beside(api_keys=f"acme:{ACME_KEY}", demo_tokens_per_second=50)
    page = visit(service, "#/new")
    page.get_by_label("API key").fill(ACME_KEY)
    page.get_by_role("button", name="Open").click()
    page.get_by_label("Message").fill("Count to 500.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[aria-live=polite]")).to_contain_text("2")
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.locator("[aria-live=polite]").text_content() == ""


def test_a_search_that_finds_nothing_says_which_words_are_looked_at(service: ServiceProcess, visit: Open) -> None:
    asked = {"text": "nobody-said-this"}
    wait_until(lambda: service.http().get("/console/api/trees", params=asked).json()["archive_away"] is None)
    page = visit(service)
    page.get_by_label("Find words or an id").fill(asked["text"])
    page.keyboard.press("Enter")
    expect(page.locator(".empty")).to_contain_text("unless HARMONIUM_CATALOGUE_WORDS is all")


def test_keys_lead_to_the_search_a_new_conversation_and_their_own_list(service: ServiceProcess, visit: Open) -> None:
    said(service, "My name is Ada.")
    page = visit(service, f"#/c/{said(service, 'Count to 3.')}")
    expect(page.locator(".here .item.user")).to_be_visible()
    page.locator(".graph").focus()
    page.keyboard.press("/")
    box = page.get_by_label("Find words or an id")
    expect(box).to_be_focused()
    page.keyboard.type("n?/")
    expect(box).to_have_value("n?/")
    box.fill("")
    expect(page.locator(".trees li").nth(1)).to_be_visible()
    box.blur()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".trees a").nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".trees a").nth(1)).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("new conversation")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="New conversation")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_small_screen_has_room_for_what_is_read(service: ServiceProcess, visit: Open, scheme: str) -> None:
    id = said(service, "My name is Ada. " * 40)
    page = visit(service, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(page.locator(".trees li").first).to_be_visible()
    assert page.locator(".trees").evaluate("(trees) => trees.getBoundingClientRect().top") < 220
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Status").select_option("completed")
    expect(page.get_by_role("button", name="Filters (1)")).to_be_visible()
    assert complaints(page) == []
    page.goto(f"{service.url}/console#/c/{id}")
    expect(page.locator(".here .item.assistant")).to_be_visible()
    assert page.locator(".reading").evaluate("(box) => box.clientHeight") > 680
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_hidden()
    page.get_by_role("button", name="Continue from here").click()
    expect(page.get_by_label("Message")).to_be_focused()
    expect(send).to_be_visible()
    page.get_by_label("In the background").check()
    expect(send).to_be_visible()
    page.get_by_role("button", name="More").click()
    expect(page.get_by_text("1 turn", exact=True)).to_be_visible()
    assert complaints(page) == []


def test_what_a_browser_broke_off_is_read_again_and_nothing_is_sent_twice(service: ServiceProcess, visit: Open) -> None:
    """A browser breaks off its waiting requests when a network of its machine comes or goes."""
    id = said(service, "Where is the anvil?")
    page = visit(service)
    asked = list[str]()

    def break_off(route: Route) -> None:
        place = f"{route.request.method} {route.request.url.removeprefix(service.url)}"
        asked.append(place)
        if asked.count(place) > 2:
            route.continue_()
        else:
            route.abort()

    page.route("**/v1/**", break_off)
    page.route("**/console/api/**", break_off)
    page.goto(f"{service.url}/console#/c/{id}")
    expect(page.locator(".here .item.assistant")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert (asked.count(f"GET /console/api/trees/{id}"), asked.count(f"GET /v1/responses/{id}")) == (3, 3)
    page.get_by_label("Message").fill("Is it here?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("The service doesn't answer.")
    assert asked.count("POST /v1/responses") == 1
