"""A conversation of 80 turns with everything in it, light and dark, on all screens; and one of 300 turns."""

from collections.abc import Iterator
from statistics import median

import pytest
from playwright.sync_api import Page, expect

from tests.features.console.browser.conftest import HEIGHT, Open
from tests.features.console.browser.test_accessible import DRAWN, OUT_OF_SIGHT, complaints
from tests.support.console.everything import TURNS, fill_with_everything, serving_everything
from tests.support.console.samples import said
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients

WIDTHS = (1360, 680, 390)
"""680 is a window of 1,360 at twice the size."""

READ_MS = 30_000
"""How long the reading of all turns may take beside other tests."""

LONG = 300
MOST_SECONDS = 3.0
"""How long such a conversation may take to open beside other tests; alone it takes a fifth of it."""

MOST_THREAD_SECONDS = 0.6
"""How long the page's thread may run for a link to it: 0.2 s, and what comes behind it meanwhile."""

OPENINGS = 10
MOST_PAINT_MS = 2_000
"""When the first of the list may be seen beside other tests; docs/performance.md has the figure alone."""

PAINTED = """() => new Promise((done) => new PerformanceObserver((seen) => {
    const first = seen.getEntriesByName('first-contentful-paint')[0];
    if (first) done(first.startTime);
}).observe({type: 'paint', buffered: true}))"""

OPENED = """(turns) => new Promise((done) => {
    const begin = performance.now();
    document.querySelector('.trees a').click();
    const look = () => {
        const isWhole = document.querySelectorAll('.turn').length === turns;
        const isThere = isWhole && document.querySelector('.here .item.assistant');
        requestAnimationFrame(isThere ? () => done((performance.now() - begin) / 1000) : look);
    };
    look();
})"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, str]]:
    """A service with the conversation, and the id of its last turn."""
    with serving_everything(tmp_path_factory.mktemp("everything")) as service:
        yield service, fill_with_everything(service)


def read_whole(page: Page) -> None:
    """Have all turns in the page, with all that is folded open."""
    expect(page.locator(".turn .above")).to_have_count(TURNS, timeout=READ_MS)
    page.evaluate("for (const each of document.querySelectorAll('.reading details')) each.open = true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_of_it_is_in_sight_and_axe_finds_nothing(
    everything: tuple[ServiceProcess, str], visit: Open, scheme: str
) -> None:
    service, last = everything
    page = visit(service, f"#/c/{last}", color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    read_whole(page)
    expect(page.locator(".hl-keyword").first).to_be_visible()
    found = dict[int, object]()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.evaluate(DRAWN)
        found[width] = [page.evaluate(OUT_OF_SIGHT), complaints(page)]
    assert found == {width: [[], []] for width in WIDTHS}


def test_what_ran_what_was_found_and_what_was_answered_is_shown(
    everything: tuple[ServiceProcess, str], visit: Open
) -> None:
    service, last = everything
    page = visit(service, f"#/c/{last}")
    read_whole(page)
    turns = page.locator(".turn")
    expect(turns.filter(has_text="print(6 * 7)").locator(".call", has_text="python").first).to_contain_text("42")
    expect(turns.filter(has_text="Search for the moon.").locator(".sources").first).to_contain_text("moon")
    expect(page.locator(".approval.answered h2")).to_have_text(["Approved", "Denied: Not today.", "Approved"])
    expect(page.locator(".call", has_text="maths · add").filter(has_text="5").first).to_be_visible()
    expect(page.locator(".call", has_text="get_weather").first).to_contain_text("18 degrees")
    failed = page.locator("details.call", has_text="maths · fail")
    expect(failed).to_contain_text("failed")
    expect(failed.locator(".result")).to_contain_text("Error executing tool fail")
    expect(failed).not_to_contain_text("mcp_tool_execution_error")
    expect(page.get_by_text("image/png, ").first).to_be_visible()
    expect(page.get_by_text("It ended early: max output tokens.")).to_be_visible()
    code = page.locator(".turn pre code")
    expect(code.filter(has_text="def double").locator(".hl-keyword").first).to_have_text("def")
    expect(code.filter(has_text="as it is").locator("span")).to_have_count(0)


def test_files_that_code_wrote_are_listed_and_saved_as_long_as_its_container_lives(
    everything: tuple[ServiceProcess, str], visit: Open
) -> None:
    service, last = everything
    page = visit(service, f"#/c/{last}")
    expect(page.locator(".turn .above")).to_have_count(TURNS, timeout=READ_MS)
    wrote = page.locator(".turn", has_text="squares.csv").locator(".call")
    wrote.get_by_text("Files").click()
    with page.expect_download() as saved:
        wrote.locator("li", has_text="squares.csv, 5 B").get_by_role("button", name="Download").click()
    assert (saved.value.suggested_filename, saved.value.path().read_text()) == ("squares.csv", "1,4,9")
    for container in service.client().containers.list().data:
        service.client().containers.delete(container.id)
    page.reload()
    expect(page.locator(".turn .above")).to_have_count(TURNS, timeout=READ_MS)
    wrote.get_by_text("Files").click()
    expect(wrote.get_by_role("alert")).to_contain_text("not found")


def test_what_colours_code_is_loaded_with_the_first_code_in_a_language(
    everything: tuple[ServiceProcess, str], visit: Open
) -> None:
    service, last = everything
    page = visit(service)
    loaded = list[str]()
    page.on("request", lambda request: loaded.append(request.url))
    page.reload()
    expect(page.locator(".trees li").first).to_be_visible()
    assert not any("highlight-" in url for url in loaded)
    page.goto(f"{service.url}/console#/c/{last}")
    read_whole(page)
    expect(page.locator(".hl-keyword").first).to_be_visible()
    assert sum("highlight-" in url for url in loaded) == 1


@pytest.fixture(scope="module")
def long(service: ServiceProcess) -> str:
    """The last turn of a long conversation."""
    id = None
    for number in range(LONG):
        id = said(service, f"Question {number}.", id, max_output_tokens=40)
    assert id
    return id


def test_a_link_to_three_hundred_turns_takes_little_of_the_browsers_time(
    service: ServiceProcess, long: str, visit: Open
) -> None:
    page = visit(service, "/static/")
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"{service.url}/console#/c/{long}")
    expect(page.locator(".turn")).to_have_count(LONG)
    expect(page.locator(".here .item.assistant")).to_be_visible()
    metrics = {each["name"]: each["value"] for each in browser.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < MOST_THREAD_SECONDS


def test_three_hundred_turns_open_at_once_and_the_last_is_read_once(
    service: ServiceProcess, long: str, visit: Open
) -> None:
    id = long
    page = visit(service)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    expect(page.locator(".trees li").first).to_be_visible()
    assert page.evaluate(OPENED, LONG) < MOST_SECONDS
    assert asked.count(f"{service.url}/v1/responses/{id}") == 1


@pytest.mark.full
def test_how_soon_the_console_is_seen_and_a_long_conversation_is_open(
    service: ServiceProcess, long: str, visit: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints the figures of docs/performance.md, medians of some openings, each with an empty cache."""
    paints, openings = list[float](), list[float]()
    visit(service).context.close()  # the browser's own start isn't the page's
    for _ in range(OPENINGS):
        page = visit(service)
        paints.append(page.evaluate(PAINTED))
        expect(page.locator(".trees li").first).to_be_visible()
        openings.append(page.evaluate(OPENED, LONG))
        page.context.close()
    with capsys.disabled():
        print(f"\nfirst paint {median(paints):.0f} ms, {LONG} turns {median(openings) * 1e3:.0f} ms")
    assert (median(paints) < MOST_PAINT_MS, median(openings) < MOST_SECONDS) == (True, True)
