"""A conversation in a browser: the graph of its turns, how it is moved in, and the views of a turn."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.features.console.browser.conftest import Open
from tests.support.console.samples import said
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.tools.server import mcp_server

pytestmark = pytest.mark.clients

NOW = 1_790_000_000


@pytest.fixture
def forked(service: ServiceProcess) -> list[str]:
    """A root with a branch of one turn and one of two: the ids in the order of the graph."""
    root = said(service, "My name is Ada.")
    small = said(service, "Count to 3.", root)
    middle = said(service, "What is my name?", root)
    return [root, small, middle, said(service, "Tell me a story.", middle)]


def test_branches_are_drawn_in_lanes_the_largest_in_that_of_its_parent(
    service: ServiceProcess, forked: list[str], visit: Open
) -> None:
    page = visit(service, f"#/c/{forked[2]}")
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(4)
    texts = ["My name is Ada.", "Count to 3.", "What is my name?", "Tell me a story."]
    assert page.locator(".row b").all_inner_texts() == texts
    lanes = [circle.get_attribute("class") for circle in page.locator(".lanes circle").all()]
    assert [str(lane).split()[0] for lane in lanes] == ["lane-0", "lane-1", "lane-0", "lane-0"]
    assert [row.get_attribute("aria-level") for row in rows.all()] == ["1", "2", "2", "3"]
    expect(page.get_by_role("heading", level=1)).to_have_text("My name is Ada.")
    expect(page.get_by_text("4 turns, 1 fork")).to_be_visible()


def test_a_conversation_is_read_from_its_root_to_the_turn_with_its_forks_beside_it(
    service: ServiceProcess, forked: list[str], visit: Open
) -> None:
    page = visit(service, f"#/c/{forked[3]}")
    turns = page.get_by_role("region", name="Conversation").get_by_role("article")
    expect(turns).to_have_count(3)
    expect(page.locator(".item.user .text")).to_have_text(["My name is Ada.", "What is my name?", "Tell me a story."])
    expect(turns.nth(1).locator(".item.assistant")).to_have_text("assistantYour name is Ada.")
    expect(turns.nth(2)).to_have_class(re.compile("here"))
    page.get_by_text("1 other branch here").click()
    turns.nth(0).get_by_role("link", name="Count to 3.").click()
    expect(page).to_have_url(re.compile(forked[1]))
    expect(page.locator(".item.user .text")).to_have_text(["My name is Ada.", "Count to 3."])


MARKDOWN = """# A plan

Here is a **plan**, see [the guide](https://example.org/guide) and ![a map](https://example.org/map.png).

| Day | Cost |
| --- | ---: |
| Mon | 12 € |

```python
days = [1, 2]
```

It is \\(d = \\sqrt{x_1^2}\\) for $a_1$.
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNkYPhfz0AEYBxVSF+FAAhKDveksOjmAAAAAElFTkSuQmCC"
CITED = {"type": "url_citation", "url": "https://example.org/", "title": "A guide", "start_index": 0, "end_index": 1}
FILE = {"type": "container_file_citation", "container_id": "cntr_1", "file_id": "cfile_1", "filename": "plan.csv"}
TOLD: list[dict[str, object]] = [
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "maps", "tools": [{"name": "route"}, {"name": "find"}]},
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "maps",
        "name": "route",
        "arguments": "{}",
        "output": "by tram",
    },
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1 + 1", "outputs": [{"type": "logs", "logs": "2"}]},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "Lisbon"}},
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop", "name": "buy", "arguments": '{"n":1}'},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "content": [{"type": "output_text", "text": "There.", "annotations": [CITED, FILE]}],
    },
]


def test_an_answer_is_shown_as_what_it_is(service: ServiceProcess, visit: Open) -> None:
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    asked = [
        {"role": "user", "content": [picture, {"type": "input_text", "text": "*Plan* a week."}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"city":"Lisbon"}'},
        {"type": "function_call_output", "call_id": "c", "output": '{"degrees":24}'},
        {"role": "assistant", "content": MARKDOWN},
        {"role": "user", "content": "Hello."},
    ]
    id = service.client().responses.create(model=MODEL, input=asked).id  # type: ignore[arg-type]
    page = visit(service, f"#/c/{id}", permissions=["clipboard-read", "clipboard-write"])
    expect(page.locator(".item.user").first).to_contain_text("*Plan* a week.")
    call = page.locator(".item.call")
    expect(call).to_have_count(1)
    expect(call.locator("summary code")).to_have_text("look")
    expect(call.locator(".result")).to_have_text('{ "degrees": 24 }')
    read = page.locator(".markdown").first
    expect(read.get_by_role("heading", name="A plan")).to_be_visible()
    expect(read.locator("strong")).to_have_text("plan")
    expect(read.locator("td.right")).to_have_text("12 €")
    expect(read.locator("code.math")).to_have_text(["\\(d = \\sqrt{x_1^2}\\)", "$a_1$"])
    expect(read).to_contain_text("the guide (https://example.org/guide)")
    expect(read).to_contain_text("[image: a map] (https://example.org/map.png)")
    expect(read.locator("pre > code")).to_have_text("days = [1, 2]")
    read.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == "days = [1, 2]"
    expect(page.locator("img")).to_have_count(0)
    expect(page.locator(".attached")).to_contain_text("image/png, 79 B")
    page.get_by_role("button", name="Show", exact=True).click()
    assert page.locator("img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 10


def test_a_text_that_is_too_long_for_a_page_is_saved_as_a_file(service: ServiceProcess, visit: Open) -> None:
    page = visit(service, f"#/c/{said(service, 'walrus ' * 60_000)}")
    expect(page.locator(".item.user .text")).to_have_text(("walrus " * 2_858)[:20_000].strip())
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save all 420,000 characters").click()
    assert saved.value.path().read_text() == "walrus " * 60_000


def test_calls_of_tools_have_what_came_of_them_and_an_approval_its_buttons(
    service: ServiceProcess, visit: Open
) -> None:
    id = said(service, "My name is Ada.")
    told = service.http().get(f"/v1/responses/{id}").json() | {"output": TOLD}
    page = visit(service)
    page.route(f"**/v1/responses/{id}", lambda route: route.fulfill(json=told))
    page.route("**/v1/containers/cntr_1/files/cfile_1/content", lambda route: route.fulfill(body="a,b"))
    page.goto(f"{service.url}/console#/c/{id}")
    calls = page.locator(".item.call")
    names = ["maps: 2 tools", "maps · route", "python", "search", "shop · buy"]
    expect(calls.locator("summary code, p code")).to_have_text(names)
    expect(calls.nth(0).get_by_text("find")).to_be_hidden()
    expect(calls.nth(1)).to_contain_text("by tram")
    expect(calls.nth(2).locator(".result")).to_have_text("2")
    expect(page.get_by_role("link", name="A guide")).to_have_attribute("href", "https://example.org/")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    assert (saved.value.suggested_filename, saved.value.path().read_text()) == ("plan.csv", "a,b")
    for button, approve in (("Approve", True), ("Deny", False)):
        with page.expect_request(lambda request: request.method == "POST") as sent:
            page.locator(".approval").get_by_role("button", name=button).click()
        body: Any = sent.value.post_data_json
        answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
        assert (body["previous_response_id"], body["input"]) == (id, [answer])
        page.locator(".composer").get_by_role("button", name="Close").click()


def test_an_approval_that_was_answered_says_so_is_not_offered_again_and_the_branches_below_have_its_words(
    start: Callable[..., ServiceProcess], visit: Open, tmp_path: Path
) -> None:
    with mcp_server(tmp_path / "mcp") as server:
        (tmp_path / "mcp.toml").write_text(f'[maths]\nurl = "{server.url}"\nallowed_tools = ["add"]\n')
        service = start(mcp_servers=tmp_path / "mcp.toml")
        tools = [{"type": "mcp", "server_label": "maths"}]
        asked, other = (said(service, f"Use the add tool with {n} and 40.", tools=tools) for n in (2, 3))
        page = visit(service, f"#/c/{asked}")
        approval, words = page.locator(".item.approval"), page.locator(".item.user .text")
        expect(approval.get_by_role("button", name="Approve", exact=True)).to_be_visible()
        approval.get_by_role("button", name="Approve", exact=True).click()
        expect(words).to_have_text(["Use the add tool with 2 and 40.", "Approved"])
        expect(page.locator(".row.selected")).to_contain_text("Approved")
        expect(page.locator(".here .item.assistant")).to_contain_text("42")
        expect(approval.get_by_role("heading")).to_have_text("Approved")
        expect(approval.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
        page.goto(f"{service.url}/console#/c/{asked}")
        expect(approval.get_by_role("heading")).to_have_text("Approved")
        expect(approval.get_by_role("button", name="Deny")).to_have_count(0)
        expect(page.locator(".branches a")).to_have_text("Approved")
        page.goto(f"{service.url}/console#/c/{other}")
        approval.get_by_label("Reason to deny").fill(" Not today ")
        approval.get_by_role("button", name="Deny").click()
        expect(words).to_have_text(["Use the add tool with 3 and 40.", "Denied: Not today"])
        denied = re.findall("resp_[0-9a-f]+", page.url)[0]
        page.goto(f"{service.url}/console#/c/{other}")
        expect(page.locator(".branches a")).to_have_text("Denied: Not today")
        approval.get_by_role("link", name="Denied: Not today").click()
        expect(page).to_have_url(re.compile(denied))
        expect(words).to_have_text(["Use the add tool with 3 and 40.", "Denied: Not today"])
        expect(page.get_by_text("mcp approval response")).to_have_count(0)
        page.goto(f"{service.url}/console#/compare/{other}/{denied}")
        expect(page.get_by_role("region", name="Right")).to_contain_text("Denied: Not today")


def test_a_call_has_its_output_once_a_later_turn_gave_it_which_says_whose_it_is(
    service: ServiceProcess, visit: Open
) -> None:
    tool: Any = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    asked = service.client().responses.create(model=MODEL, input="Use the look_up tool.", tools=[tool])
    call: Any = next(item for item in asked.output if item.type == "function_call")
    given = said(service, [{"type": "function_call_output", "call_id": call.call_id, "output": "**24**"}], asked.id)
    page = visit(service, f"#/c/{asked.id}")
    expect(page.locator(".row b")).to_have_text(["Use the look_up tool.", "look_up → 24"])
    expect(page.locator(".item.call summary code")).to_have_text("look_up")
    page.locator(".item.call .later").click()
    expect(page).to_have_url(re.compile(given))
    expect(page.locator(".here .item.call summary code")).to_have_text("result of look_up")
    expect(page.locator(".here .item.call .result")).to_have_text("**24**")
    expect(page.get_by_text(call.call_id)).to_have_count(0)


def test_what_calls_came_to_is_shown_though_the_client_did_not_ask_for_it(service: ServiceProcess, visit: Open) -> None:
    id = said(service, "My name is Ada.")
    calls = [{"type": "code_interpreter_call", "id": "ci_1", "code": "6 * 7", "outputs": None}]
    calls += [{"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "moon"}}]
    calls += [{"type": "file_search_call", "id": "fs_1", "queries": ["tides"], "results": None}]
    told = service.http().get(f"/v1/responses/{id}").json() | {"output": calls}
    texts = {"ci_1": "42", "ws_1": "[0] Results", "fs_1": "[]"}
    data = [{"id": each, "text": text, "sources": []} for each, text in texts.items()]
    data[1]["sources"] = ["https://example.org/moon"]
    page = visit(service)
    page.route(f"**/v1/responses/{id}", lambda route: route.fulfill(json=told))
    page.route(f"**/console/api/turns/{id}/outcomes", lambda route: route.fulfill(json={"data": data}))
    page.goto(f"{service.url}/console#/c/{id}")
    shown = page.locator(".item.call")
    expect(shown.locator("summary code")).to_have_text(["python", "search", "file search"])
    expect(shown.nth(0).locator(".result")).to_have_text("42")
    expect(shown.nth(1).get_by_role("link")).to_have_attribute("href", "https://example.org/moon")
    shown.nth(1).get_by_text("What the model read").click()
    expect(shown.nth(1).get_by_text("[0] Results")).to_be_visible()
    expect(shown.nth(2).locator(".result")).to_have_text("[]")


def test_the_line_for_a_shell_asks_the_same_again(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    id = said(service, "It's $(date) `id` \\ 'here' \u202e.", root)
    page = visit(service, f"#/c/{id}")
    page.get_by_role("tab", name="curl").click()
    line = page.locator(".code .text").inner_text()
    answer = json.loads(subprocess.run(["bash", "-c", line], capture_output=True, check=True, timeout=30).stdout)
    assert answer["previous_response_id"] == root
    told = service.client().responses.input_items.list(answer["id"], limit=1).data[0]
    assert told.to_dict()["content"][0]["text"] == "It's $(date) `id` \\ 'here' \u202e."  # type: ignore[index]
    assert "Authorization" not in shlex.split(line)


def test_a_text_is_copied_over_plain_http_too(service: ServiceProcess, visit: Open) -> None:
    page = visit(service, f"#/c/{said(service, 'My name is Ada.')}", permissions=["clipboard-read", "clipboard-write"])
    copy = page.locator(".here").get_by_role("button", name="Link", exact=True)
    expect(copy).to_be_visible()
    page.evaluate("window.clipboard = navigator.clipboard")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    copy.click()
    expect(copy.locator(".done")).to_have_text("✓")
    assert page.evaluate("clipboard.readText()") == page.url
    expect(copy).to_be_focused()


@pytest.mark.parametrize("forked", [False, True])
def test_of_a_large_tree_the_rows_that_are_seen_are_drawn(service: ServiceProcess, visit: Open, forked: bool) -> None:
    """5,000 turns in a line, or all but one forks of their root."""
    ids = [f"resp_{number:048x}" for number in range(5_000)]
    same = {"kind": "response", "status": "completed", "model": MODEL, "created_at": NOW, "used_at": NOW}
    same |= {"input_tokens": 1, "output_tokens": 1, "output": "So."}
    turns = [
        same
        | {
            "id": id,
            "input": f"Question {number}",
            "parent": ids[0 if forked else number - 1] if number else None,
            "depth": min(number, 1) + 1 if forked else number + 1,
        }
        for number, id in enumerate(ids)
    ]
    tree = {"object": "console.tree", "id": ids[0], "asked": ids[-1], "last_used_at": NOW, "turns": turns}
    tree |= {"turns_complete": True, "excerpts_complete": True}
    page = visit(service)
    page.route("**/console/api/trees/*", lambda route: route.fulfill(json=tree))
    page.route("**/v1/responses/**", lambda route: route.fulfill(status=404, json={"error": {"message": "none"}}))
    page.goto(f"{service.url}/console#/c/{ids[-1]}")
    expect(page.locator(".row.selected")).to_be_visible()
    expect(page.locator(".here")).to_be_visible()
    assert page.locator(".turn").count() == (2 if forked else len(ids))
    assert page.locator(".turn .failure, .turn .items").count() < 30, "far ones are their room alone"
    assert page.locator(".row").count() < 60
    page.get_by_role("tree").press("Home")
    expect(page.locator(".row.selected")).to_contain_text("Question 0")


def test_tokens_are_boxes_with_their_ids_and_a_mark_is_no_text(service: ServiceProcess, visit: Open) -> None:
    id = said(service, "<|end|> " + "word " * 1_100)
    page = visit(service, f"#/c/{id}")
    page.get_by_role("tab", name="Tokens").click()
    expect(page.locator(".token")).to_have_count(1_024)
    marks = page.locator(".token.special bdi").all_inner_texts()
    assert marks == ["<|start|>", "<|message|>"], "the text <|end|> is none of them"
    assert page.locator(".token:not(.special) bdi").all_inner_texts()[:4] == ["user", "<", "|", "end"]
    expect(page.locator(".token").first).to_have_attribute("title", "special token 200006")
    expect(page.locator(".token small").first).to_be_hidden()
    page.get_by_label("Show ids").check()
    expect(page.locator(".token small").first).to_have_text("200006")
    told = service.http().get(f"/console/api/turns/{id}/tokens").json()
    expect(page.locator(".tokens > .hint")).to_contain_text(f"added {told['length']:,} tokens")
    expect(page.locator(".tokens > .hint")).to_contain_text(f"read {told['input_tokens']:,} tokens in all, ")
    page.get_by_role("button", name="Later").click()
    expect(page.locator(".message").first).to_contain_text("from number 1,025 on")
    shown = page.locator(".token").count()
    assert shown == told["length"] - 1_024
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator(".token").first).to_have_attribute("title", "special token 200006")
