"""The list of conversations, in a browser: what it shows, how it is narrowed and paged, who may see it, and how it is
saved in files, which come back.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import NotFoundError
from playwright.sync_api import FilePayload, Page, Route, expect

from tests.features.console.browser.conftest import Open
from tests.support.console.samples import said
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, HARMONIUM, MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

START = Callable[..., ServiceProcess]
BESIDE = Callable[..., ServiceBeside]


def rows(page: Page) -> list[str]:
    """The first lines of what is listed."""
    return page.locator(".trees .words b").all_inner_texts()


def opened(page: Page, key: str) -> None:
    """Type a key and open the console with it."""
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Open").click()


def test_without_keys_it_opens_at_once_and_an_empty_store_says_what_will_be_here(beside: BESIDE, visit: Open) -> None:
    page = visit(beside())
    expect(page.get_by_role("heading", name="No conversations yet")).to_be_visible()
    expect(page.get_by_label("API key")).to_have_count(0)
    expect(page.get_by_text("Demo engine: no real model")).to_be_visible()
    expect(page.get_by_role("button", name="Older")).to_be_disabled()


def test_conversations_are_rows_the_one_used_last_first_and_lead_to_their_newest_turn(
    beside: BESIDE, visit: Open
) -> None:
    service = beside()
    said(service, "Tell me a story.")
    first = said(service, "My name is Ada.")
    newest = said(service, "What is my name?", first)
    page = visit(service)
    expect(page.locator(".trees li")).to_have_count(2)
    assert rows(page) == ["My name is Ada.", "Tell me a story."]
    expect(page.locator(".trees li").first).to_contain_text("What is my name? → Your name is Ada.")
    expect(page.locator(".trees li").first).to_contain_text("2 turns")
    page.locator(".trees a").first.click()
    expect(page).to_have_url(re.compile(newest))
    expect(page.locator(".row.selected")).to_contain_text("What is my name?")
    page.go_back()
    expect(page.locator(".trees li")).to_have_count(2)


def test_filters_narrow_the_list_and_are_cleared(beside: BESIDE, visit: Open) -> None:
    service = beside()
    said(service, "My name is Ada.", metadata={"team": "blue"})
    said(service, "Tell me a story.", max_output_tokens=16)
    page = visit(service)
    expect(page.locator(".trees li")).to_have_count(2)
    page.get_by_label("Status").select_option("incomplete")
    expect(page.locator(".trees li")).to_have_count(1)
    assert rows(page) == ["Tell me a story."]
    page.get_by_label("Metadata").fill("team=blue")
    page.get_by_label("Metadata").press("Enter")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(".trees li")).to_have_count(2)
    page.get_by_label("Model").fill("other")
    page.get_by_label("Model").press("Enter")
    expect(page.locator(".trees li")).to_have_count(0)


def test_the_conversations_of_a_filtered_page_are_deleted_together(beside: BESIDE, visit: Open) -> None:
    service = beside()
    kept = said(service, "Hello.")
    for number in range(3):
        first = said(service, f"I live in street {number}.", metadata={"user": "bob"})
        said(service, "Count to 2.", first)
    for is_deleted in (False, True):
        conversation = service.client().conversations.create(metadata={"user": "bob"}).id
        answer = service.client().responses.create(model=MODEL, input="Hello.", conversation=conversation).id
        if is_deleted:
            service.client().responses.delete(answer)
    page = visit(service)
    rows = page.locator(".trees li")
    expect(rows).to_have_count(6)
    delete = page.get_by_role("button", name="Delete these…")
    expect(delete).to_have_count(0)
    page.get_by_label("Metadata").fill("user=bob")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(5)
    delete.click()
    expect(page.get_by_role("dialog", name="Delete these 5 conversations?")).to_contain_text("This can't be undone.")
    page.get_by_role("dialog").get_by_role("button", name="Delete these").click()
    expect(page.get_by_text("No conversation matches what you look for.")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect(rows).to_have_count(1)
    assert service.client().responses.retrieve(kept).id == kept


def test_conversations_that_are_gone_by_now_keep_none_of_the_others_from_being_deleted(
    beside: BESIDE, visit: Open
) -> None:
    service = beside()
    made = [said(service, f"I live in street {number}.", metadata={"user": "bob"}) for number in range(3)]
    page = visit(service)
    page.get_by_label("Metadata").fill("user=bob")
    page.keyboard.press("Enter")
    expect(page.locator(".trees li")).to_have_count(3)
    service.http().delete(f"/v1/responses/{made[2]}?tree=true")
    page.get_by_role("button", name="Delete these…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete these").click()
    expect(page.get_by_text("No conversation matches what you look for.")).to_be_visible()
    assert [service.http().get(f"/v1/responses/{id}").status_code for id in made] == [404] * 3


def test_what_was_listed_when_somebody_asked_is_deleted_and_nothing_that_came_since(
    beside: BESIDE, visit: Open
) -> None:
    service = beside()
    shown = said(service, "Hello.")
    page = visit(service)
    page.get_by_label("Status").select_option("completed")
    page.get_by_role("button", name="Delete these…").click()
    since = said(service, "Of somebody else, just now.")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator(".trees li")).to_have_count(2)
    dialog = page.get_by_role("dialog", name="Delete these 1 conversation?")
    dialog.get_by_role("button", name="Delete these").click()
    expect(page.locator(".trees li")).to_have_count(1)
    assert [service.http().get(f"/v1/responses/{id}").status_code for id in (shown, since)] == [404, 200]


def test_a_filter_that_has_no_effect_offers_no_deletion(beside: BESIDE, visit: Open) -> None:
    service = beside()
    said(service, "Hello.", metadata={"user": "eve"})
    page = visit(service)
    page.get_by_label("Status").select_option("completed")
    expect(page.get_by_role("button", name="Delete these…")).to_be_visible()
    page.get_by_label("Metadata").fill("bob")
    page.keyboard.press("Enter")
    expect(page.get_by_text("It has no effect now.")).to_be_visible()
    expect(page.locator(".trees li")).to_have_count(1)
    expect(page.get_by_role("button", name="Delete these…")).to_have_count(0)


def test_the_list_has_one_scroll_bar(beside: BESIDE, visit: Open) -> None:
    service = beside()
    for number in range(30):
        said(service, f"Question {number}.", max_output_tokens=16)
    page = visit(service)
    expect(page.locator(".trees li")).to_have_count(30)
    boxes = "[document.scrollingElement, document.querySelector('main')]"
    assert page.evaluate(f"{boxes}.map((each) => each.scrollHeight > each.clientHeight)") == [False, True]


def test_pages_follow_one_another_and_back_and_a_service_that_is_gone_is_tried_again(start: START, visit: Open) -> None:
    service = start()
    texts = [f"Number {number}." for number in range(52)]
    for text in texts:
        said(service, text)
    page = visit(service)
    listed, alert = page.locator(".trees .words b"), page.get_by_role("alert")
    expect(listed).to_have_text(texts[:1:-1])
    page.get_by_role("button", name="Older").click()
    expect(listed).to_have_text(texts[1::-1])
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    expect(listed).to_have_text(texts[:1:-1])
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")  # it tries nothing by itself
    service.stop()
    page.get_by_role("button", name="Refresh").click()
    expect(alert).to_contain_text("The service doesn't answer")
    service.start()
    page.get_by_role("button", name="Try again").click()
    expect(alert).to_have_count(0)
    expect(listed).to_have_text(texts[:1:-1])


def catalogued(service: ServiceProcess, words: str) -> None:
    """Return once words are found, and the catalogue is whole: until then all that is in memory is found."""

    def is_whole() -> bool:
        page = http.get("/console/api/trees", params={"text": words}).json()
        return page["archive_away"] is None and page["data"] != []

    with service.http() as http:
        wait_until(is_whole)


def test_words_are_found_in_any_turn_shown_where_they_stand_and_lead_there(start: START, visit: Open) -> None:
    service = start()
    root = said(service, "My name is Ada.")
    middle = said(service, "Where is the anvil?", root)
    said(service, "Count to 3.", middle)
    said(service, "Tell me a story.")
    catalogued(service, "anvil")
    page = visit(service)
    expect(page.locator(".trees li")).to_have_count(2)
    box = page.get_by_label("Find words or an id")
    box.fill("ANV where")
    box.press("Enter")
    expect(page.locator(".trees li")).to_have_count(1)
    assert rows(page) == ["My name is Ada."]
    assert page.locator(".trees mark").all_inner_texts() == ["Where", "anvil"]
    page.locator(".trees a").first.click()
    expect(page).to_have_url(re.compile(middle))
    page.go_back()
    expect(page.locator(".trees mark")).to_have_count(2)
    box.fill("(no.*such[thing")
    box.press("Enter")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    box.fill(middle[:40])
    box.press("Enter")
    expect(page.locator(".trees a")).to_have_attribute("href", re.compile(middle))


def test_all_that_is_kept_is_listed_and_what_is_in_the_archive_alone_is_marked_found_and_opened(
    start: START, visit: Open, tmp_path: Path
) -> None:
    whole = start()
    made = [said(whole, f"Number {number}.") for number in range(52)]
    (tmp_path / "service-1").mkdir()
    for command, of in (("backup", "service-0"), ("restore", "service-1")):
        line = [HARMONIUM, command, "one.hm", "--data-dir", tmp_path / of / "data"]
        subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    service = start()
    page = visit(service)
    listed, away = page.locator(".trees li"), page.locator(".trees .away")
    expect(listed).to_have_count(50)
    expect(away).to_have_text(["archived"] * 50)
    assert rows(page) == [f"Number {number}." for number in range(51, 1, -1)]
    page.get_by_role("button", name="Older").click()
    expect(listed).to_have_count(2)
    expect(page.get_by_text("These are all.")).to_be_visible()
    catalogued(service, "number 51")
    box = page.get_by_label("Find words or an id")
    box.fill("NUMBER 51")
    box.press("Enter")
    expect(listed).to_have_count(1)
    assert page.locator(".trees b mark").all_inner_texts() == ["Number", "51"]
    page.locator(".trees a").first.click()
    expect(page.locator(".row.selected")).to_contain_text("Number 51.")
    assert made[51] in page.url
    page.go_back()
    expect(listed).to_have_count(1)
    expect(away).to_have_count(0)
    box.fill("nowhere")
    box.press("Enter")
    expect(page.get_by_text("No conversation matches")).to_be_visible()


def test_a_search_of_memory_goes_on_by_itself_says_how_far_it_is_and_is_stopped(start: START, visit: Open) -> None:
    service = start(archive_url="none")
    said(service, "My name is Ada.")
    (tree,) = service.http().get("/console/api/trees").json()["data"]
    asked, waiting = list[str](), list[Route]()

    def told(route: Route, *, stopped: bool = True, found: bool = False) -> None:
        searched = {"trees": 1_200, "back_to": 1_700_000_000, "stopped": "time" if stopped else None, "unread": 0}
        after = f"place-{len(asked)}" if stopped else None
        data = [tree] if found else []
        answer = {"data": data, "has_more": stopped, "after": after, "searched": searched, "archive_away": None}
        route.fulfill(json=answer)

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 3:
            waiting.append(route)
        else:
            told(route, stopped=len(asked) < 3, found=len(asked) == 1)

    page = visit(service)
    listed = page.locator(".trees li")
    expect(listed).to_have_count(1)
    page.route("**/console/api/trees?*text=*", answer)
    box = page.get_by_label("Find words or an id")
    box.fill("ada")
    box.press("Enter")
    expect(page.get_by_text("Looked at 2,400 conversations")).to_be_visible()
    expect(listed).to_have_count(1)
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_role("button", name="Older")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    told(waiting[0])
    expect(page.get_by_text("Looked at 3,600 conversations")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_have_count(0)
    assert [re.findall("after=([a-z0-9-]+)", url) for url in asked] == [[], ["place-1"], ["place-2"]]
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    assert "after=place-3" in asked[-1]


@pytest.mark.parametrize(
    ("away", "words"),
    [("unavailable", "The archive doesn't answer"), ("cataloguing", "The archive's catalogue is being built")],
)
def test_the_reason_is_told_why_the_archive_can_not_be_asked_and_no_list_is_called_empty(
    service: ServiceProcess, visit: Open, away: str, words: str
) -> None:
    page = visit(service)
    searched = {"trees": 0, "back_to": None, "stopped": None, "unread": 0}
    told = {"data": [], "has_more": False, "after": None, "searched": searched, "archive_away": away}
    page.route("**/console/api/trees?*model=*", lambda route: route.fulfill(json=told))
    page.get_by_label("Model").fill("other")
    page.get_by_label("Model").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.locator(".empty")).to_have_count(0)


@pytest.mark.parametrize("words", ["20261130", "763871d1", "ctopu"])
def test_numbers_and_parts_of_words_are_found_and_marked(beside: BESIDE, visit: Open, words: str) -> None:
    service = beside()
    said(service, "The octopus has the number 20261130, and the commit 763871d1.")
    page = visit(service)
    page.get_by_label("Find words or an id").fill(words)
    page.keyboard.press("Enter")
    expect(page.locator(".trees .answer mark")).to_have_text("octopus" if words == "ctopu" else words)
    page.locator(".trees a").click()
    expect(page.locator(".here .item.assistant")).to_be_visible()
    page.wait_for_function("CSS.highlights.get('found')?.size > 0")


def test_a_key_that_may_no_longer_read_can_be_forgotten(tenants: ServiceProcess, visit: Open) -> None:
    page = visit(tenants)
    opened(page, ACME_KEY)
    expect(page.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()
    refusal = {"error": {"message": "The key lacks a scope."}}
    page.route("**/console/api/trees?*", lambda route: route.fulfill(status=403, json=refusal))
    page.reload()
    expect(page.get_by_role("heading", name="Can't open the console")).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Forget the key").click()
    opened(page, GLOBEX_KEY)
    expect(page.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()


def test_a_list_that_was_refused_for_a_moment_is_asked_for_again(beside: BESIDE, visit: Open) -> None:
    service = beside()
    said(service, "Where is the anvil?")
    with service.http() as http:
        told = http.get("/console/api/trees").json()
    told["data"][0]["under_way"] = 1  # it is looked at again soon
    refusal = {"error": {"message": "A limit is reached."}}
    answers = [(200, told)]
    page = visit(service)

    def answer(route: Route) -> None:
        status, body = answers[0] if len(answers) == 1 else answers.pop(0)
        route.fulfill(status=status, json=body)

    page.route("**/console/api/trees?*", answer)
    page.reload()
    expect(page.locator(".trees li")).to_have_count(1)
    answers[:] = [(429, refusal), (200, told)]
    expect(page.get_by_role("alert")).to_contain_text("A limit is reached.")
    expect(page.get_by_role("alert")).to_have_count(0, timeout=15_000)


def test_a_key_is_asked_for_tried_kept_for_the_tab_and_forgotten(tenants: ServiceProcess, visit: Open) -> None:
    said(tenants, "I am of acme.", key=ACME_KEY)
    page = visit(tenants)
    opened(page, "sk-wrong")
    expect(page.get_by_role("alert")).to_contain_text("Incorrect API key")
    opened(page, "sk-\u2026")
    expect(page.get_by_role("alert")).to_contain_text("ASCII")
    opened(page, ACME_KEY)
    expect(page.locator(".trees li").first).to_be_visible()
    assert page.context.cookies() == []
    assert ACME_KEY not in page.evaluate("JSON.stringify(localStorage)")
    page.reload()
    expect(page.locator(".trees li").first).to_be_visible()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_one_tenant_sees_nothing_of_another_neither_in_the_list_nor_by_id(tenants: ServiceProcess, visit: Open) -> None:
    id = said(tenants, "The secret of acme.", key=ACME_KEY)
    said(tenants, "The plan of globex.", key=GLOBEX_KEY)
    page = visit(tenants)
    opened(page, GLOBEX_KEY)
    expect(page.get_by_text("The plan of globex.").first).to_be_visible()
    expect(page.get_by_text("acme")).to_have_count(0)
    page.goto(f"{tenants.url}/console#/c/{id}")
    expect(page.get_by_role("alert")).to_contain_text("not found")
    page.get_by_role("button", name="Forget the key").click()
    opened(page, ACME_KEY)
    expect(page.get_by_text("The secret of acme.").first).to_be_visible()
    expect(page.get_by_text("globex")).to_have_count(0)


def exported(page: Page) -> str:
    """The text of the file that Export saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    return Path(download.value.path()).read_text()


def imported(page: Page, content: str) -> None:
    """Choose a file with that content to be imported, in the list."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import").click()
    chooser.value.set_files(FilePayload(name="tree.jsonl", mimeType="", buffer=content.encode()))


def test_a_tree_is_exported_and_comes_back_with_all_its_branches(
    start: Callable[..., ServiceProcess], visit: Open
) -> None:
    service = start(archive_url="none")  # an archive would know that it was deleted
    client = service.client()
    root = said(service, "My name is Ada.")
    left, right, gone = (said(service, text, root) for text in ("What is my name?", "Count to 3.", "Hello."))
    leaf = said(service, "Count to 2.", gone)
    client.responses.delete(gone)
    answers = {id: client.responses.retrieve(id) for id in (root, left, right, leaf)}
    page = visit(service, f"#/c/{left}")
    text = exported(page)
    head, *turns = map(json.loads, text.splitlines())
    assert head == {"object": "harmonium.tree", "version": 1, "id": root}
    parents = {turn["id"]: turn["parent"] for turn in turns}
    assert parents == {root: None, left: root, right: root, gone: root, leaf: gone}
    http = service.http()
    assert http.delete(f"/v1/responses/{root}", params={"tree": "true"}).status_code == 200
    page.goto(f"{service.url}/console#/")
    expect(page.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()
    imported(page, text)
    expect(page.locator(".outcome")).to_have_text("5 turns imported, 0 already here.")
    expect(page.locator(".trees a").first).to_have_attribute("href", f"#/c/{leaf}")
    assert {id: client.responses.retrieve(id) for id in answers} == answers
    with pytest.raises(NotFoundError):
        client.responses.retrieve(gone)
    page.goto(f"{service.url}/console#/c/{leaf}")
    expect(page.locator(".row")).to_have_count(5)


def test_what_is_refused_is_told_and_the_rest_comes(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    said(service, "What is my name?", root)
    head, first, second = exported(page := visit(service, f"#/c/{root}")).splitlines()
    changed = json.loads(first)
    changed["turn"] = "AAAA" + changed["turn"][4:]
    page.goto(f"{service.url}/console#/")
    imported(page, "\n".join([head, "", json.dumps(changed), second]))
    expect(page.locator(".outcome p")).to_have_text("0 turns imported, 1 already here, 1 refused.")
    expect(page.locator(".outcome li")).to_contain_text("Line 3: Invalid value for 'seal'")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "The file is empty"),
        ("no JSON", "Line 1 isn't a JSON object"),
        ("\n[]", "Line 2 isn't a JSON object"),
        ('{"turn":7}', "Line 1 isn't a turn"),
        ('{"object":"harmonium.tree","version":2}', "another version than 1"),
        ("\x00\x1b\u202e", "Line 1 isn't a JSON object"),
    ],
)
def test_a_file_that_is_no_export_is_told(service: ServiceProcess, visit: Open, content: str, words: str) -> None:
    page = visit(service)
    imported(page, content)
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.get_by_role("button", name="Import")).to_be_enabled()
