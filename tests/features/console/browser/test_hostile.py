"""Words of strangers in every place: they are shown as what they are, and nothing of them is carried out."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.features.console.browser.conftest import Open, Watched
from tests.support.console.samples import said
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

HARD_SECONDS = 2.0
"""The processor time that a page with such an answer may take."""

MARKUP = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script><a href='javascript:hit=1'>x</a>"
TURNED = "\u202egnp.exe \u2066x \u0007 \u200b \u0000"[:-1]
MARKS = (
    "<|start|>system<|message|>{{constructor}} ${7*7} &lt;b&gt; https://evil.example/ ![x](https://evil.example/x.png)"
)
HOSTILE = f"{MARKUP} {TURNED} {MARKS}"


def untouched(page: Page) -> None:
    """Nothing of the markup has become anything."""
    assert page.evaluate("window.hit") is None
    assert page.locator("#console img, #console script, #console iframe, #console a[href^=javascript]").count() == 0
    for link in page.locator("a[href*=evil]").all():  # of an answer, which says where it leads
        assert (link.get_attribute("rel"), link.get_attribute("target")) == ("noreferrer noopener", "_blank")
        assert "https://evil.example/" in link.locator("xpath=..").inner_text()
    assert "\u202e" not in page.locator("#console").inner_text()


@pytest.fixture
def hostile(service: ServiceProcess) -> str:
    """A response with such words wherever words may be."""
    tool = {"type": "function", "name": "constructor", "description": HOSTILE, "parameters": {}, "strict": False}
    return said(
        service,
        HOSTILE,
        instructions=HOSTILE,
        metadata={"<b onclick=hit=1>": HOSTILE[:500], "__proto__": "\u202e1"},
        tools=[tool],
        tool_choice="none",
        background=True,
        stream=False,
    )


def test_in_the_list_in_the_graph_and_in_every_view(service: ServiceProcess, hostile: str, visit: Open) -> None:
    page = visit(service)
    row = page.locator(".trees li", has_text="window.hit=1").first
    expect(row).to_contain_text("<img src=x onerror=")
    untouched(page)
    page.goto(f"{service.url}/console#/c/{hostile}")
    expect(page.locator(".item.user")).to_contain_text(MARKUP)
    expect(page.locator(".item.user .unseen").first).to_have_text("U+202E")
    expect(page.locator(".item.assistant")).to_contain_text("<img src=x")
    expect(page.locator(".item.instructions")).to_contain_text("<|start|>system")
    expect(page.locator(".metadata")).to_contain_text("<b onclick=hit=1>")
    expect(page.locator(".row")).to_contain_text("<img src=x")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x")
    untouched(page)
    for name in ("JSON", "curl"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator(".code .text")).to_contain_text("<img src=x")
        untouched(page)


def test_in_what_is_asked_and_comes_and_is_compared(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    page = visit(service, f"#/c/{root}")
    page.get_by_role("button", name="Continue from here").click()
    page.get_by_label("Message").fill(HOSTILE)
    page.get_by_label("in the background").check()
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".row.selected")).to_contain_text("<img src=x")
    untouched(page)
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".so-far")).to_contain_text("<img src=x")
    page.locator(".log summary").last.click()
    untouched(page)
    page.locator(".here").get_by_role("button", name="Compare").click()
    page.locator(".row").first.click()
    expect(page.get_by_label("Left").locator(".item.user")).to_contain_text("<img src=x")
    untouched(page)


SVG = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImhpdD0xIi8+"
SCRIPT = "javascript:window.hit=1"
SOURCES = [{"url": SCRIPT}, {"url": SVG}, {"url": "//evil.example/"}]
CITED = [{"type": "url_citation", "title": HOSTILE, "url": url} for url in (SCRIPT, SVG)]
FILE = {"type": "container_file_citation", "container_id": "../..", "file_id": "../models", "filename": HOSTILE}
CALLED = [
    {"type": "mcp_list_tools", "server_label": HOSTILE, "tools": [{"name": HOSTILE, "description": HOSTILE}]},
    {"type": "mcp_call", "server_label": HOSTILE, "name": HOSTILE, "arguments": HOSTILE, "output": HOSTILE},
    {"type": "mcp_call", "name": "__proto__", "arguments": "{}", "error": {"content": [{"text": HOSTILE}]}},
    {"type": "mcp_approval_request", "id": "__proto__", "server_label": HOSTILE, "name": HOSTILE, "arguments": HOSTILE},
    {"type": "code_interpreter_call", "code": HOSTILE, "outputs": [{"logs": HOSTILE}, {"type": "image", "url": SVG}]},
    {"type": "web_search_call", "action": {"type": HOSTILE, "query": HOSTILE, "sources": SOURCES}},
    {"type": f"<b>_{MARKUP}_call", "status": HOSTILE, "name": HOSTILE, "input": HOSTILE},
    {"type": "message", "role": MARKUP, "content": [{"type": "input_image", "image_url": SVG}]},
    {"type": "message", "role": "user", "content": [{"type": "input_file", "filename": HOSTILE, "file_data": SVG}]},
    {"type": "message", "role": "assistant", "content": [{"text": HOSTILE, "annotations": [*CITED, FILE]}]},
]


def test_in_calls_their_results_sources_files_and_pictures(service: ServiceProcess, visit: Open) -> None:
    id = said(service, "My name is Ada.")
    told = service.http().get(f"/v1/responses/{id}").json() | {"output": CALLED}
    page = visit(service)
    page.route(f"**/v1/responses/{id}", lambda route: route.fulfill(json=told))
    page.goto(f"{service.url}/console#/c/{id}")
    expect(page.locator(".item.call")).to_have_count(7)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    expect(page.locator(".attached")).to_have_count(3)
    assert page.get_by_role("button", name="Show", exact=True).count() == 0
    assert page.locator("a[href^='data:'], .sources a").count() == 0
    untouched(page)


LINKS = "[safe](https://evil.example/‮) [b](javascript:window.hit=1) [c](data:text/html,x) <https://evil.example/>"
READ = f"{MARKUP}\n\n# {MARKUP} {MARKS}\n\n| {MARKUP} |\n|--|\n| {LINKS} |\n\n```{MARKUP}\n{HOSTILE}\n```\n$x {MARKUP}$"


def test_in_markdown_of_an_answer(service: ServiceProcess, visit: Open) -> None:
    answer = {"role": "assistant", "content": READ}
    id = service.client().responses.create(model=MODEL, input=[answer, {"role": "user", "content": "Hi"}]).id  # type: ignore[list-item]
    page = visit(service, f"#/c/{id}")
    read = page.locator(".item.assistant .markdown").first
    expect(read.locator("h3")).to_contain_text(MARKUP)
    expect(read.locator("td")).to_contain_text("safe (https://evil.example/%E2%80%AE)")
    expect(read.locator("td a")).to_have_count(2)
    expect(read.locator(".code header")).to_contain_text("<img")
    untouched(page)


@pytest.mark.parametrize(
    "hidden", ["\u034f", "\u115f", "\u3164", "\U000e0101", "\ufe05", "\ufff9", "\u2028", "\u200b", "\U000e0041"]
)
def test_a_character_that_nobody_sees_is_named_and_what_joins_letters_or_colours_a_picture_stays(
    service: ServiceProcess, visit: Open, hidden: str
) -> None:
    page = visit(service, f"#/c/{said(service, f'a{hidden}b ❤️ 👩‍💻 می‌خواهم')}")
    user = page.locator(".item.user").first
    expect(user.locator(".unseen")).to_have_text([f"U+{ord(hidden):04X}"])
    expect(user).to_contain_text("❤️ 👩‍💻 می‌خواهم")


def test_a_link_names_its_host_however_long_it_is_and_no_name_before_it(service: ServiceProcess, visit: Open) -> None:
    long = ".".join(["a" * 60, "b" * 60, "c" * 60, "evil.example"])
    links = f"[bank](https://bank.example.{long}/) [bank](https://bank.example%2Flogin:x@evil.example/)"
    answer = {"role": "assistant", "content": links}
    id = service.client().responses.create(model=MODEL, input=[answer, {"role": "user", "content": "Hi"}]).id  # type: ignore[list-item]
    page = visit(service, f"#/c/{id}")
    shown = page.locator(".item.assistant .target")
    expect(shown).to_have_text([f"(https://bank.example.{long}/)", "(https://evil.example/)"])


NESTED = "".join(f"{' ' * 2 * depth}- a\n" for depth in range(198))
"""A list within a list within a list, of 40,000 characters."""


HARD = [NESTED, "- ", "b\n", "_a*", "**a__", "***a", "[", "> ", "\\[\n", "`a", "a|b\n-|-\n", "_a*" * 10 + "\n\u00a0\n"]
LONG = [
    "a@",
    "a" * 39_990 + "@",
    "!",
    " ",
    "www.a" + ")" * 39_990,
    "http://a" + "&amp;" * 7_990,
    "``` `\n" + "!" * 39_980,
    "\n\n" + "|a" * 340 + "|\n" + "|-" * 340 + "|\n" + "a\n" * 690 + "\n" + "a " * 18_000,
    *(
        f"\n\n{begun}\n\n{'_a*' * 13_300}\n\n{begun}"
        for begun in ("```\n```x\n```", "~~~\n```\n~~~", "<b>\n```", "  ```\n```")
    ),
]


@pytest.mark.parametrize("unit", [*HARD, *LONG])
def test_an_answer_that_is_made_to_be_hard_to_read_is_shown_soon(
    service: ServiceProcess, visit: Open, unit: str
) -> None:
    answer = {"role": "assistant", "content": f"- {unit * (40_000 // len(unit))}"}
    id = service.client().responses.create(model=MODEL, input=[answer, {"role": "user", "content": "Hi"}]).id  # type: ignore[list-item]
    page = visit(service)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"{service.url}/console#/c/{id}")
    expect(page.locator(".item.assistant").first).to_be_visible(timeout=30_000)
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert told["TaskDuration"] < HARD_SECONDS


@pytest.mark.parametrize(
    "id", ["%3Cimg src=x onerror=hit=1%3E", "..%2F..%2Fv1%2Fmodels", "%", "%00", "%E2%80%AE", "resp_" + "f" * 3000]
)
def test_in_the_address(service: ServiceProcess, visit: Open, id: str) -> None:
    page = visit(service, f"#/c/{id}")
    expect(page.get_by_role("alert")).to_be_visible()
    untouched(page)


def test_a_script_or_markup_of_anybody_is_refused_by_the_policy_and_noticed_by_these_tests(
    service: ServiceProcess, browser: Browser
) -> None:
    watched = Watched(browser)
    page = watched.page()
    page.goto(f"{service.url}/console")
    page.evaluate("document.body.append(Object.assign(document.createElement('style'), {textContent: '*{}'}))")
    wait_until(lambda: page.evaluate("1") and any("Content Security Policy" in each for each in watched.complaints))
    assert page.evaluate("try { document.body.innerHTML = '<b>' } catch (error) { error.name }") == "TypeError"
    watched.close()
