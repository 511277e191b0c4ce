"""What can be done with a turn in a browser: going on, again, with other words, stopping, comparing, taking away."""

import json
import re
from collections.abc import Callable

import pytest
from openai import NotFoundError
from playwright.sync_api import Page, expect

from tests.features.console.browser.conftest import Open
from tests.support.console.samples import WEATHER, said
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.clients

START = Callable[..., ServiceProcess]
BESIDE = Callable[..., ServiceBeside]


def selected(page: Page) -> str:
    """The id of the turn that is looked at, once it is another one."""
    return re.findall(r"resp_[0-9a-f]+", page.url)[0]


def send(page: Page, action: str, words: str | None, *, background: bool = False) -> None:
    """Ask for another turn of the one that is looked at."""
    page.locator(".here").get_by_role("button", name=action, exact=True).click()
    if words is not None:
        page.get_by_label("Message").fill(words)
        if background:
            page.get_by_label("in the background").check()
        page.locator(".composer").get_by_role("button", name="Send", exact=True).click()


def test_a_turn_is_continued_and_the_answer_is_shown_in_the_graph(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.", instructions="Be brief.", max_output_tokens=500)
    page = visit(service, f"#/c/{root}")
    send(page, "Continue from here", "What is my name?")
    expect(page.locator(".row.selected")).to_contain_text("Your name is Ada.")
    made = service.client().responses.retrieve(selected(page))
    assert (made.previous_response_id, made.instructions) == (root, "Be brief.")
    assert made.max_output_tokens is None, "how long one answer may be is no word about the next"
    expect(page.locator(".here .item.assistant")).to_contain_text("Your name is Ada.")
    expect(page.get_by_label("Message")).to_have_value("")


def test_words_are_edited_and_a_fork_begins(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    leaf = said(service, "What is my name?", root)
    page = visit(service, f"#/c/{leaf}")
    page.locator(".here").get_by_role("button", name="Edit and fork").click()
    expect(page.get_by_label("Message")).to_have_value("What is my name?")
    page.get_by_label("Message").fill("Count to 3.")
    page.get_by_label("Message").press("Control+Enter")
    expect(page.locator(".row.selected")).to_contain_text("Count to 3.")
    made = service.client().responses.retrieve(selected(page))
    assert (made.previous_response_id, made.output_text.split()) == (root, ["1", "2", "3"])


def test_a_retry_is_of_the_same_person_with_the_same_parameters(beside: BESIDE, visit: Open) -> None:
    service = beside()
    asked = {"safety_identifier": "ada", "user": "ada-1", "prompt_cache_key": "a", "presence_penalty": 0.5}
    asked |= {"frequency_penalty": -0.5}
    made = service.http().post("/v1/responses", json={"model": MODEL, "input": "My name is Ada.", **asked}).json()["id"]
    page = visit(service, f"#/c/{made}")
    page.locator(".here").get_by_role("button", name="Retry").click()
    expect(page).not_to_have_url(re.compile(made))
    again = service.http().get(f"/v1/responses/{selected(page)}").json()
    assert {name: again[name] for name in asked} == asked


def test_a_refusal_is_shown_in_the_services_words_and_the_words_stay(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    page = visit(service, f"#/c/{root}")
    expect(page.locator(".here .item.assistant")).to_be_visible()
    service.client().responses.delete(root)
    send(page, "Continue from here", "What is my name?")
    expect(page.locator(".composer [role=alert]")).to_contain_text("not found")
    expect(page.get_by_label("Message")).to_have_value("What is my name?")


def test_a_stream_is_shown_as_it_comes_and_stopped_with_what_was_said(beside: BESIDE, visit: Open) -> None:
    service = beside(demo_tokens_per_second=50)
    root = said(service, "Hello.")
    page = visit(service, f"#/c/{root}")
    send(page, "Continue from here", "Count to 500.")
    expect(page.locator(".coming .piece.answer")).to_contain_text("2")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator(".row.selected")).to_contain_text("Count to 500.")
    made = service.client().responses.retrieve(selected(page))
    assert made.status in ("incomplete", "cancelled")
    assert made.output_text.startswith("1")


def test_what_was_said_is_read_while_more_comes(beside: BESIDE, visit: Open) -> None:
    service = beside(demo_tokens_per_second=50)
    page = visit(service, f"#/c/{said(service, 'Count to 60.')}")
    send(page, "Continue from here", "Count to 500.")
    words, box = page.locator(".coming .piece.answer"), page.locator(".reading")
    expect(words).to_contain_text("20")
    from_end = "each => each.scrollHeight - each.scrollTop - each.clientHeight"
    wait_until(lambda: box.evaluate(from_end) < 100)
    box.hover()
    page.mouse.wheel(0, -10)
    wait_until(lambda: box.evaluate(from_end) > 250)
    page.mouse.wheel(0, 5_000)
    wait_until(lambda: box.evaluate(from_end) < 100)
    expect(words).to_contain_text("100")
    wait_until(lambda: box.evaluate(from_end) < 100)


def test_a_background_response_is_followed_over_a_restart(start: START, visit: Open) -> None:
    service = start(demo_tokens_per_second=40)
    root = said(service, "Hello.")
    page = visit(service, f"#/c/{root}")
    send(page, "Continue from here", "Count to 60.", background=True)
    expect(page.locator(".coming .piece.answer")).to_contain_text("2")
    expect(page.locator(".row")).to_have_count(2)
    service.kill()
    expect(page.get_by_text("The connection was lost. Trying again…")).to_be_visible()
    service.start()
    expect(page.locator(".row.selected")).to_contain_text("Count to 60.", timeout=60_000)
    made = service.client().responses.retrieve(selected(page))
    assert made.output_text.split() == [str(number) for number in range(1, 61)]
    expect(page.locator(".here .item.assistant")).to_contain_text("59")


def test_something_is_said_to_a_background_response(beside: BESIDE, visit: Open) -> None:
    service = beside(demo_tokens_per_second=20)
    id = said(service, "Count to 500.", background=True)
    page = visit(service, f"#/c/{id}")
    page.get_by_role("button", name="Say something", exact=True).click()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    page.get_by_label("New message").fill("Count to 3.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".row")).to_have_count(2)
    expect(page.locator(".row.selected")).to_contain_text("Count to 3.")
    expect(page.locator(".here .about .status")).to_have_text("completed")
    ended = service.client().responses.retrieve(id)
    assert ended.incomplete_details is not None
    assert ended.incomplete_details.reason == "steered"  # type: ignore[comparison-overlap]
    assert service.client().responses.retrieve(selected(page)).output_text == "1\n2\n3"
    expect(page.get_by_role("button", name="Say something", exact=True)).to_have_count(0)


def test_a_background_response_is_cancelled(beside: BESIDE, visit: Open) -> None:
    service = beside(demo_tokens_per_second=20)
    id = said(service, "Count to 500.", background=True)
    page = visit(service, f"#/c/{id}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".here .about .status")).to_have_text("cancelled")
    expect(page.locator(".row .status")).to_have_text("cancelled")
    assert service.client().responses.retrieve(id).status == "cancelled"


def test_events_come_live_and_are_played_again(beside: BESIDE, visit: Open) -> None:
    service = beside(demo_tokens_per_second=10)
    with service.client().responses.create(model=MODEL, input="Count to 30.", background=True, stream=True) as stream:
        id = next(iter(stream)).response.id  # type: ignore[union-attr]
    page = visit(service, f"#/c/{id}")
    page.get_by_role("tab", name="Events").click()
    expect(page.get_by_text("more come as it runs")).to_be_visible()
    expect(page.locator(".log li").last).to_contain_text("response.completed", timeout=30_000)
    expect(page.locator(".so-far .piece.answer")).to_contain_text("30")
    page.get_by_label("Event", exact=True).fill("3")
    expect(page.locator(".log li")).to_have_count(4)
    expect(page.locator(".so-far .piece.answer")).to_have_count(0)
    page.get_by_label("Events a second").select_option("500")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".log li").last).to_contain_text("response.completed")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    page.locator(".log summary").last.press("Enter")  # a click may fall on another row while the log scrolls
    expect(page.locator(".log details[open]")).to_contain_text('"type": "response.completed"')


def test_events_go_on_after_a_restart(start: START, visit: Open) -> None:
    service = start(demo_tokens_per_second=20)
    with service.client().responses.create(model=MODEL, input="Count to 90.", background=True, stream=True) as stream:
        id = next(iter(stream)).response.id  # type: ignore[union-attr]
    page = visit(service, f"#/c/{id}")
    page.get_by_role("tab", name="Events").click()
    expect(page.locator(".so-far .piece.answer")).to_contain_text("2")
    service.kill()
    expect(page.get_by_text("The connection was lost. Trying again…")).to_be_visible()
    service.start()
    expect(page.locator(".log li").last).to_contain_text("response.completed", timeout=60_000)
    expect(page.locator(".so-far .piece.answer")).to_contain_text("90")
    expect(page.get_by_text("The connection was lost.")).to_have_count(0)


def test_two_turns_stand_side_by_side_at_their_first_difference(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    left, right = said(service, "What is my name?", root), said(service, "Count to 3.", root)
    page = visit(service, f"#/c/{left}")
    page.locator(".here").get_by_role("button", name="Compare").click()
    expect(page.get_by_text("Choose the turn to compare with.")).to_be_visible()
    page.locator(".row", has_text="Count to 3.").click()
    expect(page).to_have_url(re.compile(f"{left}/{right}"))
    for side, own in (("Left", "Your name is Ada."), ("Right", "3")):
        expect(page.get_by_label(side).locator(".shared-turns .short")).to_be_hidden()
        expect(page.get_by_label(side).locator(".own")).to_be_in_viewport()
        page.get_by_label(side).get_by_text("1 shared turn").click()
        expect(page.get_by_label(side).locator(".shared-turns .short")).to_contain_text("My name is Ada.")
        expect(page.get_by_label(side).locator(".own .item.assistant")).to_contain_text(own)
    page.get_by_role("link", name="← Back").click()
    expect(page.locator(".row.selected")).to_contain_text("What is my name?")


def test_a_replay_links_to_both_conversations_side_by_side(service: ServiceProcess, visit: Open) -> None:
    first = said(service, "My name is Ada.")
    again = service.client().responses.create(model=MODEL, input="Count to 3.", metadata={"replay_of": first}).id
    page = visit(service, f"#/c/{again}")
    page.get_by_role("link", name="Compare with").click()
    expect(page).to_have_url(re.compile(f"compare/{first}/{again}"))
    expect(page.get_by_role("heading", name="Two conversations")).to_be_visible()
    for side, own in (("Left", "My name is Ada."), ("Right", "Count to 3.")):
        expect(page.get_by_label(side).locator(".own")).to_contain_text(own)


def test_a_response_is_deleted_and_what_continues_it_stays(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    leaf = said(service, "What is my name?", root)
    page = visit(service, f"#/c/{root}")
    page.locator(".here").get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator(".row").first).to_contain_text("Deleted")
    with pytest.raises(NotFoundError):
        service.client().responses.retrieve(root)
    assert service.client().responses.retrieve(leaf).output_text == "Your name is Ada."


def test_after_its_last_turn_is_deleted_a_conversation_is_shown_up_to_the_one_before(
    service: ServiceProcess, visit: Open
) -> None:
    root = said(service, "My name is Ada.")
    page = visit(service, f"#/c/{said(service, 'What is my name?', root)}")
    page.locator(".here").get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".row")).to_have_count(1)
    expect(page.locator(".here .item.user")).to_contain_text("My name is Ada.")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_was_deleted_elsewhere_is_shown_no_more_once_it_is_asked_for_again(
    service: ServiceProcess, visit: Open
) -> None:
    root = said(service, "My name is Ada.")
    leaf = said(service, "What is my name?", root)
    page = visit(service, f"#/c/{leaf}")
    expect(page.locator(".here .item.assistant")).to_contain_text("Your name is Ada.")
    service.client().responses.delete(leaf)
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator(".row")).to_have_count(1)
    expect(page.locator(".here .item.user")).to_contain_text("My name is Ada.")
    service.http().delete(f"/v1/responses/{root}?tree=true")
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("heading", name="Can't show this conversation")).to_be_visible()
    assert "Ada" not in (page.locator("#console").text_content() or "")


def test_from_a_conversation_that_is_gone_a_browser_goes_back_to_the_one_before(
    service: ServiceProcess, visit: Open
) -> None:
    one, gone = said(service, "My name is Ada."), said(service, "Count to 3.")
    service.http().delete(f"/v1/responses/{gone}?tree=true")
    page = visit(service, f"#/c/{one}")
    expect(page.locator(".here .item.assistant")).to_be_visible()
    page.evaluate(f"location.hash = '#/c/{gone}'")
    expect(page.get_by_role("heading", name="Can't show this conversation")).to_be_visible()
    page.go_back()
    expect(page.locator(".here .item.user")).to_contain_text("My name is Ada.")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_conversation_is_deleted_after_one_question(service: ServiceProcess, visit: Open) -> None:
    root = said(service, "My name is Ada.")
    leaf = said(service, "What is my name?", root)
    page = visit(service, f"#/c/{leaf}")
    page.locator(".heading").get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete this conversation?")
    expect(dialog).to_contain_text("All 2 turns, with every branch.")
    expect(dialog).to_contain_text("This can't be undone.")
    expect(dialog.get_by_role("button")).to_have_text(["Cancel", "Delete"])
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Delete…").first).to_be_focused()
    assert service.client().responses.retrieve(leaf).id == leaf
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Conversations", exact=True)).to_be_visible()
    with pytest.raises(NotFoundError):
        service.client().responses.retrieve(root)


def test_a_conversation_is_begun_with_what_was_chosen(service: ServiceProcess, visit: Open) -> None:
    page = visit(service)
    page.get_by_role("link", name="New conversation").click()
    expect(page.get_by_label("Message")).to_be_focused()
    page.get_by_label("Model").select_option(MODEL)
    page.get_by_label("Reasoning effort").select_option("low")
    page.get_by_label("Instructions").fill("Be brief.\nBe kind.")
    page.get_by_label("More tools").fill('{"type": "function"}')
    page.get_by_label("Message").fill("My name is Ada.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").first).to_contain_text("More tools should be a JSON array")
    page.get_by_label("More tools").fill(json.dumps([WEATHER], indent=2))
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".row.selected")).to_contain_text("My name is Ada.")
    made = service.client().responses.retrieve(selected(page))
    assert made.reasoning is not None
    assert (made.model, made.reasoning.effort, made.instructions) == (MODEL, "low", "Be brief.\nBe kind.")
    assert [tool.to_dict()["name"] for tool in made.tools] == ["get_weather"]
    page.get_by_role("link", name="← Conversations").click()
    page.get_by_role("link", name="New conversation").click()
    expect(page.get_by_label("Message")).to_have_value("")
