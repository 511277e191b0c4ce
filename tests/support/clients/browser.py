"""Chats in Open WebUI, in a browser: `python browser.py CHAT URL FOLDER`, in .venv-open-webui.

It prints what was seen as a line of JSON. Where something doesn't come, FOLDER has a picture of the page. Nothing of
the project is here to be imported.
"""

import json
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 30_000


def answered(page: Page, answers: int) -> None:
    """Wait until so many answers are shown whole: what is clicked or said before breaks one off."""
    page.locator(".copy-response-button").nth(answers - 1).wait_for(state="attached")


def begin(page: Page, url: str) -> None:
    """A chat with a first turn and a title, which the model was asked for."""
    page.goto(url)
    page.get_by_role("button", name="Okay, Let's Go!").click()  # what is new in this release
    say(page, "My name is Ada.", 'You said "My name is Ada."', 1)
    page.get_by_text("Ada says hello").first.wait_for()


def say(page: Page, text: str, answer: str, answers: int) -> None:
    """Type a message and send it, and wait for an answer that has these words, which is the last of so many."""
    box = page.locator("#chat-input")
    box.click()
    box.type(text)
    page.keyboard.press("Enter")
    page.get_by_text(answer).wait_for()
    answered(page, answers)


def thoughts(page: Page) -> int:
    """How many folds there are with reasoning."""
    return page.get_by_text("Thought", exact=True).count()


def folded(page: Page, url: str) -> dict[str, object]:
    """Two turns, and the reasoning in its fold."""
    begin(page, url)
    say(page, "What is my name?", "Your name is Ada.", 2)
    seen: dict[str, object] = {"folds": thoughts(page)}
    reasoning = page.get_by_text("I was told this earlier")
    seen["folded"] = reasoning.count() == 0
    page.get_by_text("Thought", exact=True).last.click()
    reasoning.wait_for()
    page.reload()
    page.get_by_text("Your name is Ada.").wait_for()
    return {**seen, "title": page.title(), "kept": thoughts(page)}


def forked(page: Page, url: str) -> dict[str, object]:
    """Turns of which one is edited, with a turn behind it that is answered anew."""
    begin(page, url)
    say(page, "What is my name?", "Your name is Ada.", 2)
    say(page, "I like chess.", 'You said "I like chess."', 3)
    page.locator(".edit-user-message-button").last.dispatch_event("click")
    page.locator("[id^=message-edit-]").fill("I like tea.")
    page.locator("#confirm-edit-message-button").click()
    page.get_by_text('You said "I like tea."').wait_for()
    answered(page, 3)
    say(page, "I like rain.", 'You said "I like rain."', 4)
    page.locator(".regenerate-response-button").last.dispatch_event("click")
    page.get_by_text("2/2").nth(1).wait_for()  # the first is that of the message that was edited
    answered(page, 4)
    return {"title": page.title()}


def main(chat: str, url: str, folder: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        try:
            print(json.dumps({"folded": folded, "forked": forked}[chat](page, url)))
        except Exception:
            page.screenshot(path=Path(folder) / "page.png")
            raise
        finally:
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
