"""A message in a browser: ticked tools, attached files, and other words for the first one of a conversation."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.features.console.browser.conftest import Open
from tests.features.console.browser.test_actions import START, selected
from tests.support.console.samples import said
from tests.support.pictures import png
from tests.support.service.process import MODEL, ServiceProcess

pytestmark = pytest.mark.clients

DROP = """([name, text, type]) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name, { type }));
    const drop = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
    document.querySelector(".composer").dispatchEvent(drop);
}"""


def test_tools_that_are_here_are_ticks_and_others_are_grey_with_their_settings(
    start: START, tmp_path: Path, visit: Open
) -> None:
    (tmp_path / "moon.md").write_text("# The moon")
    (servers := tmp_path / "mcp.toml").write_text('[docs]\nurl = "http://docs.invalid/mcp"\n')
    service = start(search="folder", search_dir=str(tmp_path), mcp_servers=str(servers))
    page = visit(service, "#/new")
    tools = page.get_by_role("group", name="Tools")
    expect(tools.locator("label")).to_have_text(["docs ", "Web search ", "Python HARMONIUM_SANDBOX"])
    expect(tools.get_by_label("Python")).to_be_disabled()
    tools.get_by_label("Web search").check()
    page.get_by_label("Message").fill("My name is Ada.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".row.selected")).to_contain_text("My name is Ada.")
    assert [tool.type for tool in service.client().responses.retrieve(selected(page)).tools] == ["web_search"]
    page.goto(f"{service.url}/console#/new")
    expect(tools.get_by_label("Web search")).to_be_checked()


def test_texts_are_attached_and_what_cannot_be_is_said_with_the_reason(service: ServiceProcess, visit: Open) -> None:
    page = visit(service, f"#/c/{said(service, 'My name is Ada.')}")
    page.get_by_label("Message").fill("What is in it?")
    page.get_by_label("Files to attach").set_input_files(
        [
            {"name": "list.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"},
            {"name": "dot.png", "mimeType": "image/png", "buffer": png()},
            {"name": "core.bin", "mimeType": "", "buffer": b"\0\xff"},
        ]
    )
    expect(page.locator(".composer").get_by_role("alert")).to_have_text(
        f"dot.png isn't attached: {MODEL} sees no pictures. "
        "core.bin isn't attached: it is neither a picture nor a text in UTF-8."
    )
    page.evaluate(DROP, ["big.txt", "x" * (6 << 20), "text/plain"])
    expect(page.locator(".composer").get_by_role("alert")).to_contain_text("have 5 MiB at most")
    page.evaluate(DROP, ["note.md", "# Notes", "text/markdown"])
    attached = page.get_by_role("list", name="Attached").locator("li")
    expect(attached).to_contain_text(["list.csv, 8 B", "note.md, 7 B"])
    page.get_by_role("button", name="Remove list.csv").click()
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".here .item.user")).to_contain_text("note.md")
    expect(attached).to_have_count(0)
    items = service.client().responses.input_items.list(selected(page)).data
    parts = [part for part in items[0].to_dict()["content"] if isinstance(part, dict)]  # type: ignore[union-attr]
    assert [part["type"] for part in parts] == ["input_text", "input_file"]


def test_a_picture_is_attached_where_the_model_sees(service: ServiceProcess, visit: Open) -> None:
    page = visit(service)

    def seeing(route: Route) -> None:
        sees = {"input_modalities": ["text", "image"]}
        route.fulfill(body=json.dumps({"data": [{"id": MODEL, "architecture": sees}]}), content_type="application/json")

    page.route("**/v1/models", seeing)
    page.goto(f"{service.url}/console#/new")
    page.get_by_label("Message").fill("What do you see?")
    page.get_by_label("Files to attach").set_input_files(
        [{"name": "dot.png", "mimeType": "image/png", "buffer": png()}]
    )
    expect(page.get_by_role("list", name="Attached")).to_contain_text("dot.png")
    page.get_by_role("button", name="Send").click()
    here = page.locator(".here .item.user")
    expect(here).to_contain_text("image/png")
    here.get_by_role("button", name="Show").click()
    expect(here.locator("img")).to_be_visible()
    page.locator(".here").get_by_role("button", name="Edit as another version").click()
    page.get_by_label("Message").fill("What is it?")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".here .item.user")).to_contain_text("What is it?")
    expect(page.locator(".here .item.user")).to_contain_text("image/png")


def test_another_version_of_the_first_message_stands_beside_it_under_one_title(
    service: ServiceProcess, visit: Open
) -> None:
    first = said(service, "My name is Ada.")
    said(service, "What is my name?", first)
    page = visit(service, f"#/c/{first}")
    page.locator(".here").get_by_role("button", name="Edit as another version").click()
    page.get_by_label("Message").fill("My name is Grace.")
    page.get_by_role("button", name="Send").click()
    versions = page.get_by_role("navigation", name="Versions of the first message")
    expect(versions).to_contain_text("2/2")
    second = selected(page)
    expect(page.locator("h1")).to_have_text("My name is Grace.")
    versions.get_by_role("link", name="Version before").click()
    expect(page.locator("h1")).to_have_text("My name is Ada.")
    expect(versions).to_contain_text("1/2")
    page.get_by_role("link", name="← Conversations").click()
    rows = page.locator(".trees li", has_text="2 versions")
    expect(rows).to_have_count(1)
    other = visit(service, f"#/c/{second}")  # where nobody knows of it, it says itself what it is a version of
    expect(other.get_by_role("navigation", name="Versions of the first message")).to_contain_text("2/2")
    other.get_by_role("link", name="Version before").click()
    expect(other.locator("h1")).to_have_text("My name is Ada.")
    assert service.client().responses.retrieve(second).metadata == {"edited_from": first}


PASTE = """([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([name], name, { type: "image/png" }));
    if (text) data.setData("text/plain", text);
    const paste = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
    return document.querySelector(".composer textarea").dispatchEvent(paste);
}"""


def test_a_pasted_text_stays_a_text_where_an_office_program_adds_its_picture(
    service: ServiceProcess, visit: Open
) -> None:
    page = visit(service, "#/new")
    expect(page.get_by_label("Message")).to_be_focused()
    assert page.evaluate(PASTE, ["table.png", "a\tb"]), "the browser pastes it"
    assert not page.evaluate(PASTE, ["screen.png", ""])
    expect(page.get_by_role("alert")).to_contain_text("screen.png isn't attached")
    expect(page.get_by_role("alert")).not_to_contain_text("table.png")
