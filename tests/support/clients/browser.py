"""Two turns of a chat in Open WebUI, in a browser: `python browser.py URL FOLDER`, in .venv-open-webui.

It prints what was seen as a line of JSON. Where something doesn't come, FOLDER has a picture of the page. Nothing of
the project is here to be imported.
"""

import json
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WAIT_MS = 30_000


def say(page: Page, text: str, answer: str) -> None:
    """Type a message and send it, and wait for an answer that has these words."""
    box = page.locator("#chat-input")
    box.click()
    box.type(text)
    page.keyboard.press("Enter")
    page.get_by_text(answer).wait_for()


def thoughts(page: Page) -> int:
    """How many folds there are with reasoning."""
    return page.get_by_text("Thought", exact=True).count()


def chat(page: Page, url: str) -> dict[str, object]:
    page.goto(url)
    page.get_by_role("button", name="Okay, Let's Go!").click()  # what is new in this release
    say(page, "My name is Ada.", 'You said "My name is Ada."')
    page.get_by_text("Ada says hello").first.wait_for()  # the title, which the model was asked for
    say(page, "What is my name?", "Your name is Ada.")
    seen: dict[str, object] = {"folds": thoughts(page)}
    reasoning = page.get_by_text("I was told this earlier")
    seen["folded"] = reasoning.count() == 0
    page.get_by_text("Thought", exact=True).last.click()
    reasoning.wait_for()
    page.reload()
    page.get_by_text("Your name is Ada.").wait_for()
    return {**seen, "title": page.title(), "kept": thoughts(page)}


def main(url: str, folder: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        try:
            print(json.dumps(chat(page, url)))
        except Exception:
            page.screenshot(path=Path(folder) / "page.png")
            raise
        finally:
            browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
