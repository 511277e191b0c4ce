"""Twelve states of the console, always the same: what the service answers in each is here, the clock stands still, and
every character is a box of one width, so that no machine's fonts matter. `python -m tests.support.console.states` takes
the pictures that they are compared with, in one file.
"""

import base64
import re
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fontTools.fontBuilder import FontBuilder  # type: ignore[import-untyped]
from fontTools.pens.ttGlyphPen import TTGlyphPen  # type: ignore[import-untyped]
from PIL import Image, ImageChops
from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.support import ROOT
from tests.support.service.process import MODEL, ServiceProcess

PICTURES = ROOT / "tests" / "support" / "console" / "states.png"
NOW = 1_790_000_000
KEY = "harmonium.key"
IDS = [f"resp_{number:048x}" for number in range(6)]

LONG = "An answer about trams, hills and tiles. " * 12
WORD = "Donaudampfschifffahrtsgesellschaftskapitän" * 4
ANSWER = f"""Here is **a plan**, see [the guide](https://example.org/{"guide/" * 12}).

| Day | What | Cost |
| --- | --- | ---: |
| Monday | The hills, by tram 28 | 12 € |

```python
plan = {{"monday": ["tram", "hills"], "tuesday": ["tiles", "a table in the evening", "and a very long line of code"]}}
```

{LONG}
"""


def _turn(number: int, parent: int | None, asked: str, said: str, **more: Any) -> dict[str, Any]:
    return {
        "id": IDS[number],
        "kind": "response",
        "status": "completed",
        "created_at": NOW - 7200 + 60 * number,
        "model": MODEL,
        "input_tokens": 1234,
        "output_tokens": 56,
        "input": asked,
        "output": said,
        "parent": None if parent is None else IDS[parent],
        "depth": number + 1,
        **more,
    }


TURNS = [
    _turn(0, None, "My name is Ada. I am planning a week in Lisbon.", LONG[:120]),
    _turn(1, 0, "What is my name?", "Your name is Ada."),
    _turn(2, 0, WORD, WORD),
    _turn(3, 1, "Plan it.", "Here is a plan."),
    _turn(4, 1, "Say more.", "The rate limit was reached.", status="failed"),
]
TREE = {
    "object": "console.tree",
    "id": IDS[0],
    "asked": IDS[3],
    "last_used_at": NOW - 60,
    "turns": TURNS,
    "turns_complete": True,
    "excerpts_complete": True,
    "archived": {"ends": [], "complete": True},
}


def _listed(number: int, title: str, **newest: Any) -> dict[str, Any]:
    turn = TURNS[number] | newest
    return {
        "id": turn["id"],
        "title": title,
        "last_used_at": NOW - 3600 * (number + 1),
        "turns": number + 1,
        "turns_complete": number != 2,
        "under_way": 0,
        "conversation": None,
        "newest": turn,
        "found": {"id": turn["id"], "text": LONG[:200]} if number == 1 else None,
    }


def _page(*trees: dict[str, Any]) -> dict[str, Any]:
    searched = {"trees": len(trees), "back_to": NOW - 9000, "unread": 0}
    return {"data": trees, "has_more": False, "after": None, "searched": searched, "has_archive": True}


LIST = _page(
    _listed(0, "My name is Ada. I am planning a week in Lisbon."),
    _listed(1, "A question"),
    _listed(2, WORD, model="a-model-with-a-name-" * 4),
    _listed(4, "My name is Ada."),
)


def _answer(turn: dict[str, Any]) -> dict[str, Any]:
    call = {
        "type": "function_call",
        "call_id": "c",
        "name": "get_weather",
        "arguments": '{"city": "Lisbon"}',
        "id": "fc",
    }
    thought = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": LONG}]}
    text = ANSWER if turn["id"] == IDS[3] else turn["output"]
    message = {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    return {
        "id": turn["id"],
        "object": "response",
        "status": turn["status"],
        "model": MODEL,
        "created_at": turn["created_at"],
        "completed_at": turn["created_at"] + 2,
        "background": False,
        "previous_response_id": turn["parent"],
        "instructions": "Answer in a friendly tone, and be brief. " * 5,
        "output": [thought, call, message] if turn["id"] == IDS[3] else [message],
        "error": {"message": turn["output"]} if turn["status"] == "failed" else None,
        "usage": {"input_tokens": 1234, "output_tokens": 56, "input_tokens_details": {"cached_tokens": 1200}},
        "metadata": {"project": "travel", "customer": WORD},
        "tools": [],
    }


def _items(turn: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "input_text", "text": turn["input"]}]
    item = {"type": "message", "id": f"msg_{turn['id'][5:]}", "role": "user", "content": content}
    return {"object": "list", "data": [item], "has_more": False, "last_id": item["id"]}


_HARMONY = [(200006, "<|start|>", True), (1428, "user", False), (200008, "<|message|>", True), (13225, "Plan", False)]
TOKENS = {
    "input_tokens": 1234,
    "cached_tokens": 1200,
    "length": 160,
    "messages": [
        {
            "index": 0,
            "role": "user",
            "name": None,
            "channel": None,
            "recipient": None,
            "content_type": None,
            "vocabulary": "harmony",
            "length": 160,
            "first": 0,
            "tokens": [{"id": id, "text": text, "special": special} for id, text, special in _HARMONY] * 40,
        }
    ],
    "after": None,
}

PROJECT = {"id": "proj_1", "name": "Letters", "created_at": NOW, "archived_at": None, "static": False, "weight": 3}
OWNER = {"service_account": {"id": "svc_1", "name": "mailer"}}


def _key(name: str, scopes: list[str]) -> dict[str, Any]:
    return {
        "id": f"key_{name}",
        "name": name,
        "created_at": NOW,
        "last_used_at": NOW - 7200,
        "expires_at": NOW + 86_400,
        "redacted_value": "sk-…1234",
        "scopes": scopes,
        "limits": None,
        "owner": OWNER,
    }


def _list(*data: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": data, "has_more": False, "last_id": None}


_USED = {"input_tokens": 90_000, "input_cached_tokens": 60_000, "output_tokens": 12_000, "num_model_requests": 70}
_BUCKETS = [
    {
        "start_time": NOW - 86_400 * day,
        "end_time": NOW - 86_400 * (day - 1),
        "results": [_USED | {"model": model} for model in (MODEL, "demo")[: day % 3]],
    }
    for day in range(7, 0, -1)
]
_SHARD = {"shard": 0, "responses": 4_100, "bytes": 3_900_000_000, "log_bytes": 1_700_000, "webhooks_pending": 0}
HEALTH = {
    "limits": {"max_responses": 100_000, "max_bytes": 4 << 30, "max_queued": 1_000, "max_log_bytes": 1 << 30},
    "shards": [_SHARD | {"running": 3, "oldest_seconds": 12.3, "queued": {"0": 5}}],
    "removed": {"responses": 0, "bytes": 12, "idle": 3},
    "engines": [{"server": "http://gpu-1:8000", "up": True, "tokens": 80_000, "room": 400_000}],
    "engine_waiting": 2,
}

REFUSED = {"error": {"message": "You didn't provide an API key.", "type": "invalid_request_error", "code": None}}
NO_PROJECTS = {"error": {"message": "An administrator's key opens no conversation."}}

Answers = dict[str, tuple[int, dict[str, Any]]]
"""The service's answers to paths that begin like this, the longest first."""

USUAL: Answers = {
    "/console/api/trees?": (200, LIST),
    "/console/api/trees/": (200, TREE),
    "/console/api/jobs": (200, {"data": [], "has_more": False}),
    "/v1/models": (200, {"data": [{"id": MODEL}]}),
}
for _each in TURNS:
    USUAL[f"/v1/responses/{_each['id']}"] = (200, _answer(_each))
    USUAL[f"/v1/responses/{_each['id']}/input_items"] = (200, _items(_each))
    USUAL[f"/console/api/turns/{_each['id']}/tokens"] = (200, TOKENS)

ORGANIZATION = "/v1/organization/projects"
ADMINISTERED: Answers = {
    "/console/api/trees?": (403, NO_PROJECTS),
    ORGANIZATION: (200, _list(PROJECT)),
    f"{ORGANIZATION}/proj_1": (200, PROJECT),
    f"{ORGANIZATION}/proj_1/service_accounts": (200, _list({"id": "svc_1", "name": "mailer", "created_at": NOW})),
    f"{ORGANIZATION}/proj_1/api_keys": (
        200,
        _list(_key("mail", []), _key("dashboard", ["api.all.read", "api.model.read"])),
    ),
    f"{ORGANIZATION}/proj_1/rate_limits": (
        200,
        _list({"id": "rl-all", "model": "all", "max_requests_per_1_minute": 600}),
    ),
    "/v1/organization/usage/completions": (200, {"data": _BUCKETS, "next_page": None}),
    "/console/api/health": (200, HEALTH),
}


class State(NamedTuple):
    """A state of the console, and how it is reached."""

    name: str
    place: str
    there: str
    """The sight once it is reached."""
    width: int = 1360
    scheme: Literal["light", "dark"] = "light"
    answers: Answers = {}
    act: Callable[[Page], object] = lambda page: None


STATES = [
    State("list", "#/", ".trees li"),
    State("empty", "#/", ".empty .code", 390, "dark", {"/console/api/trees?": (200, _page())}),
    State("new", "#/new", ".composer", 680),
    State("conversation", f"#/c/{IDS[3]}", ".here .markdown", 1360, "dark"),
    State("narrow", f"#/c/{IDS[3]}", ".here .markdown", 320),
    State(
        "graph", f"#/c/{IDS[3]}", ".row", 320, "dark", {}, lambda page: page.get_by_role("button", name="Graph").click()
    ),
    State("tokens", f"#/c/{IDS[3]}", ".token", 2560, act=lambda page: page.get_by_role("tab", name="Tokens").click()),
    State("compare", f"#/compare/{IDS[3]}/{IDS[2]}", ".side:last-child .item.assistant"),
    State(
        "delete",
        f"#/c/{IDS[3]}",
        "dialog",
        390,
        act=lambda page: page.locator(".here").get_by_role("button", name="Delete…").click(),
    ),
    State("key", "#/", ".lock form", 680, "dark", {"/console/api/trees?": (401, REFUSED)}),
    State("project", "#/projects/proj_1", ".chart", answers=ADMINISTERED),
    State("health", "#/health", "section:last-child .table", 680, "dark", ADMINISTERED),
]
HEIGHT = 860

_SCALE = 8
"""How many pixels of the page are one of a picture, to a side."""

_DIFFERS = 40
"""By how much of 255 a pixel has to be another one. Edges that are drawn otherwise by another Chromium are less, as 64
pixels of the page are one.
"""

_SHARE = 0.002
"""How much of a picture may differ: one short word that moved."""


def font() -> bytes:
    """A font in which every character is a box."""
    pen: Any = TTGlyphPen(None)
    for move, point in (("moveTo", (60, 0)), ("lineTo", (60, 520)), ("lineTo", (490, 520)), ("lineTo", (490, 0))):
        getattr(pen, move)(point)
    pen.closePath()
    box, space = pen.glyph(), TTGlyphPen(None).glyph()
    builder: Any = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "space", "box"])
    builder.setupCharacterMap({code: "space" if code in (0x20, 0xA0) else "box" for code in range(0x20, 0x2800)})
    builder.setupGlyf({".notdef": box, "space": space, "box": box})
    builder.setupHorizontalMetrics({".notdef": (550, 60), "space": (300, 0), "box": (550, 60)})
    builder.setupHorizontalHeader(ascent=900, descent=-250)
    builder.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=900, sTypoDescender=-250, usWinAscent=900, usWinDescent=250)
    builder.setupPost()
    file = BytesIO()
    builder.save(file)
    return file.getvalue()


_STYLE = f"""
@font-face {{ font-family: Boxes; src: url(data:font/ttf;base64,{base64.b64encode(font()).decode()}); }}
* {{ font-family: Boxes !important; caret-color: transparent !important; }}
"""


def reached(browser: Browser, url: str, state: State) -> Page:
    """The page of a service in a state, in a context of its own."""
    context = browser.new_context(
        viewport={"width": state.width, "height": HEIGHT},
        color_scheme=state.scheme,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        bypass_csp=True,  # for the font
    )
    page = context.new_page()
    page.clock.set_fixed_time(NOW)
    answers = USUAL | state.answers
    if state.answers is ADMINISTERED:
        page.add_init_script(f"sessionStorage.setItem('{KEY}', 'sk-admin')")

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(url)
        known = [each for each in answers if path.startswith(each)]
        if not known:
            route.continue_()
            return
        status, body = answers[max(known, key=len)]
        route.fulfill(status=status, json=body)

    page.route(re.compile(r"/console/api/|/v1/"), answer)
    page.goto(f"{url}/console{state.place}")
    page.add_style_tag(content=_STYLE)
    page.evaluate("document.fonts.load('16px Boxes')")
    state.act(page)
    page.locator(state.there).first.wait_for()
    page.wait_for_load_state("networkidle")
    return page


def seen(page: Page) -> Image.Image:
    """A picture of a page, small and grey."""
    whole = Image.open(BytesIO(page.screenshot(animations="disabled"))).convert("L")
    return whole.resize((whole.width // _SCALE, whole.height // _SCALE), Image.Resampling.BOX)


def expected() -> dict[str, Image.Image]:
    """The pictures of the states by their names, from the one file."""
    sheet = Image.open(PICTURES).convert("L")
    found, top = dict[str, Image.Image](), 0
    for state in STATES:
        size = (state.width // _SCALE, HEIGHT // _SCALE)
        found[state.name] = sheet.crop((0, top, size[0], top + size[1]))
        top += size[1]
    return found


def difference(wanted: Image.Image, found: Image.Image) -> tuple[int, int, int, int] | None:
    """Where a page differs from its picture, in pixels of the page: left, top, right, bottom; None where it doesn't."""
    differs = ImageChops.difference(wanted, found).point([255 if by > _DIFFERS else 0 for by in range(256)])
    if differs.histogram()[255] <= _SHARE * differs.width * differs.height:
        return None
    left, top, right, bottom = differs.getbbox() or (0, 0, 0, 0)
    return left * _SCALE, top * _SCALE, right * _SCALE, bottom * _SCALE


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = ServiceProcess(Path(folder))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            pictures = [seen(reached(browser, service.url, state)) for state in STATES]
        finally:
            browser.close()
            service.stop()
    sheet = Image.new("L", (max(each.width for each in pictures), sum(each.height for each in pictures)), 255)
    top = 0
    for each in pictures:
        sheet.paste(each, (0, top))
        top += each.height
    sheet.quantize(16).save(PICTURES, optimize=True)


if __name__ == "__main__":
    main()
