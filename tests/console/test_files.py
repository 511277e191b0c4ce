"""Conversations as files in a browser: what is saved is what `harmonium export` prints, and it comes back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import NotFoundError
from playwright.sync_api import FilePayload, Page, expect

from tests.console.conftest import Open
from tests.support.console.samples import said
from tests.support.service import commands
from tests.support.service.process import ServiceProcess

pytestmark = pytest.mark.clients


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
    by_command = [json.loads(line) for line in commands.said("export", left, "--url", service.url).splitlines()]
    assert [line.keys() for line in by_command] == [line.keys() for line in (head, *turns)]
    assert [line.get("turn") for line in by_command if line["id"] != gone] == [
        line.get("turn") for line in (head, *turns) if line["id"] != gone
    ]

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

    page.goto(f"{service.url}/console#/")
    imported(page, text)
    expect(page.locator(".outcome")).to_have_text("0 turns imported, 5 already here.")
    assert commands.told("import", "-", "--url", service.url, stdin=text) == {
        "imported": 0,
        "kept": 5,
        "deleted": 0,
        "refused": 0,
    }


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
        ("\n\n", "The file is empty"),
        ("no JSON", "Line 1 isn't a JSON object"),
        ("\n[]", "Line 2 isn't a JSON object"),
        ("null", "Line 1 isn't a JSON object"),
        ("{}", "Line 1 isn't a turn"),
        ('{"turn":7}', "Line 1 isn't a turn"),
        ('{"format":"harmonium.tree","version":1}', "Line 1 isn't a turn"),
        ('{"object":"harmonium.tree","version":2}', "another version than 1"),
        ("\x00\x1b\u202e", "Line 1 isn't a JSON object"),
    ],
)
def test_a_file_that_is_no_export_is_told(service: ServiceProcess, visit: Open, content: str, words: str) -> None:
    page = visit(service)
    imported(page, content)
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.get_by_role("button", name="Import")).to_be_enabled()
