"""Displays and errors, byte for byte as those of the reference browser of gpt-oss.

reference.json holds what that one showed (openai/gpt-oss at 7b58334, SimpleBrowserTool over a back end that has the
pages of the file): calls that follow each other.
"""

import json
from pathlib import Path
from typing import Any

from service.features.browser.browser.browser import Fetch, Search, UsageError, page_there, request_of, view_of
from service.features.browser.browser.page import Display, Page

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("reference.json").read_text())
VIEW_TOKENS = 1_024


def pages() -> dict[str, Page]:
    """The pages of the file, by address; searches by their query."""
    out: dict[str, Page] = {}
    for each in RECORDED["pages"]:
        search = each["url"].startswith("search:")
        url = "" if search else each["url"]
        kind = "search" if search else "page"
        out[each["url"]] = Page(kind, url, each["title"], each["text"], tuple(each["links"]))
    return out


def said(displays: list[Display], known: dict[str, Page], tool: str, arguments: dict[str, Any]) -> str:
    """What a call is answered, whose display is added to those before."""
    try:
        wanted = request_of(tool, json.dumps(arguments), displays)
        page = page_there(displays, wanted)
        if isinstance(wanted, Search):
            page = known[f"search:{wanted.query}"]
        elif page is None and isinstance(wanted, Fetch):
            if wanted.url not in known:
                return f"Error fetching URL `{wanted.url}`: there is no such page"
            page = known[wanted.url]
        assert page is not None
        text, display = view_of(displays, page, wanted, VIEW_TOKENS)
    except UsageError as error:
        return str(error)
    displays.append(display)
    return text


def test_every_display_and_error_is_that_of_the_reference() -> None:
    displays: list[Display] = []
    known = pages()

    for call in RECORDED["calls"]:
        got = said(displays, known, call["tool"], call["arguments"])
        assert got == call["display"], call
    assert len(displays) == 24
