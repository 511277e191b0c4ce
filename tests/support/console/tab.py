"""A tab that is open all day, in fast motion: what somebody does in the console minute by minute, and what that holds.

Its pauses between two polls are a hundredth of what they are. Nothing else of the page is changed: it asks a real
service, and the same timers ask in the same order.
"""

import json
from typing import NamedTuple, Self

import httpx
from playwright.sync_api import Browser, ViewportSize, expect

from tests.support.service.process import MODEL

VIEWPORT = ViewportSize(width=1360, height=860)
FASTER = 100
"""How much shorter pauses are: those of half a second and more, between two polls."""

POLLS_A_MINUTE = 20
"""How often a list is read while something runs: every three seconds (console/src/views/list.tsx)."""

VISITED = 3
"""Each so many minutes somebody looks at a conversation, and at what runs."""

RARELY = 5 * VISITED
"""And each so many asks something, compares and exports."""

TURNS = 40
"""How many turns the conversation has that is looked at."""

WAIT_MS = 60_000

_FAST = f"""
const pause = window.setTimeout;
window.setTimeout = (act, ms, ...more) => pause(act, ms >= 500 ? ms / {FASTER} : ms, ...more);
const fetched = window.fetch;
window.asked = {{}};
window.fetch = (path, options) => {{
    const [, of] = /^\\/console\\/api\\/(\\w+)/.exec(path) ?? [];
    if (of) window.asked[of] = (window.asked[of] ?? 0) + 1;
    return fetched(path, options);
}};
"""

_PAINTED = (
    "() => performance.getEntriesByType('paint').find((each) => each.name === 'first-contentful-paint')?.startTime"
)
_LISTED = "() => document.querySelector('.trees li') ? performance.now() : null"

"""When it was seen that the list is there: at the next frame behind that."""


class Held(NamedTuple):
    """What the page holds once its garbage is collected."""

    heap: int
    """Bytes of JavaScript."""
    nodes: int
    """Nodes of documents, also those that are in none."""
    listeners: int


class Shown(NamedTuple):
    """When a console that was just opened showed something, and its list, in milliseconds."""

    first: float
    list: float


def opened(browser: Browser, url: str) -> Shown:
    """When a browser that has nothing of it shows the console of a service. It must have conversations."""
    with browser.new_context(viewport=VIEWPORT) as context:
        page = context.new_page()
        page.goto(f"{url}/console")
        listed = page.wait_for_function(_LISTED).json_value()
        return Shown(page.wait_for_function(_PAINTED).json_value(), listed)


class Tab:
    """The console of a service without keys in a tab, which is open until it is closed; a context manager.

    What it makes there, it deletes, so that the lists stay as they are. The service should take some time to count.
    """

    def __init__(self, browser: Browser, url: str) -> None:
        self._url = url
        self._context = browser.new_context(viewport=VIEWPORT)
        self._context.add_init_script(_FAST)
        self.page = self._context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self._session = self._context.new_cdp_session(self.page)
        self._session.send("Performance.enable")
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=60)
        self._minutes = 0
        self._ids: list[str] = []
        self._job = ""

    def __enter__(self) -> Self:
        for number in range(TURNS):
            parent = None if not number else self._ids[-1] if number % 3 else self._ids[number // 2]
            self._ids.append(self._said("Count to 2.", previous_response_id=parent))
        self.page.goto(f"{self._url}/console")
        expect(self.page.locator(".trees li").first).to_be_visible()
        return self

    def __exit__(self, *raised: object) -> None:
        self._context.close()
        self._http.close()

    def minute(self) -> None:
        """A minute: the list is seen while something runs; and in each third one a conversation that is found by an id,
        turns of it in each of their views, and what runs, until it is cancelled.
        """
        self._minutes += 1
        self._see(POLLS_A_MINUTE)
        if self._minutes % VISITED == 0:
            self._visit()

    def _visit(self) -> None:
        self._open(self._ids[self._minutes % len(self._ids)])
        self._look("Tokens", "JSON", "curl", "Items")
        self.page.get_by_role("tree").press("ArrowUp")
        self._look("Items")
        if self._minutes % RARELY == 0:
            self._compare()
            self._export()
            self._ask()
        self._leave()
        self._open(self._job)
        self._look("Events")
        self.page.get_by_role("button", name="Play").click()
        self.page.get_by_role("button", name="Cancel").click()
        expect(self.page.locator(".here .about .status.cancelled")).to_be_visible()
        self._leave()
        self._narrow()
        self._done()

    @property
    def requests(self) -> int:
        """How many the page made so far of the console's API."""
        return int(self.page.evaluate("Object.values(asked).reduce((sum, each) => sum + each, 0)"))

    def held(self) -> Held:
        """What the page holds in the list, where nothing runs: behind a visit."""
        expect(self.page.get_by_label("Running in the background")).to_have_count(0)
        self._session.send("HeapProfiler.collectGarbage")
        told = {each["name"]: each["value"] for each in self._session.send("Performance.getMetrics")["metrics"]}
        return Held(*(int(told[name]) for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")))

    def _see(self, polls: int) -> None:
        """See the list while something runs, until it was read so many times more."""
        if not self._job:
            self._job = self._begun()
            self.page.get_by_role("button", name="Refresh").click()
        expect(self.page.get_by_label("Running in the background")).to_be_visible()
        asked = "() => Math.min(asked.jobs ?? 0, asked.trees ?? 0)"
        wanted = self.page.evaluate(asked) + polls
        self.page.wait_for_function(f"(wanted) => ({asked})() >= wanted", arg=wanted)

    def _open(self, id: str) -> None:
        """Find a conversation by an id."""
        self.page.get_by_label("Find words or an id").fill(id)
        self.page.get_by_label("Find words or an id").press("Enter")
        expect(self.page.get_by_role("tab", name="Items")).to_be_visible()

    def _look(self, *views: str) -> None:
        shown = {"Items": ".item.user", "Events": ".log li", "Tokens": ".tokens .token"}
        for view in views:
            self.page.get_by_role("tab", name=view).click()
            expect(self.page.locator(shown.get(view, ".code .text")).first).to_be_visible()

    def _leave(self) -> None:
        self.page.get_by_role("link", name="← Conversations").click()
        expect(self.page.locator(".trees li").first).to_be_visible()

    def _narrow(self) -> None:
        """Use the filters, and take them away again."""
        self.page.get_by_label("Status").select_option("failed")
        expect(self.page.locator(".trees li")).to_have_count(0)
        self.page.get_by_label("Status").select_option("")
        expect(self.page.locator(".trees li").first).to_be_visible()

    def _compare(self) -> None:
        self.page.locator(".here").get_by_role("button", name="Compare").click()
        self.page.get_by_role("tree").press("End")
        expect(self.page.locator(".side .item.assistant").first).to_be_visible()
        self.page.get_by_role("link", name="← Back").click()
        self._look("Items")

    def _export(self) -> None:
        with self.page.expect_download() as saved:
            self.page.get_by_role("button", name="Export").click()
        saved.value.delete()

    def _ask(self) -> None:
        """Go on from a turn, and take that away again."""
        before = self.page.url
        self.page.locator(".here").get_by_role("button", name="Continue from here").click()
        self.page.get_by_label("Message").fill("Count to 3.")
        self.page.locator(".composer").get_by_role("button", name="Send").click()
        self.page.wait_for_function("(before) => location.href !== before", arg=before)
        expect(self.page.get_by_label("Message")).to_have_value("")
        self._removed(self.page.url.rpartition("/")[2])

    def _said(self, words: str, **options: object) -> str:
        answer = self._http.post("/v1/responses", json={"model": MODEL, "input": words, **options})
        return answer.raise_for_status().json()["id"]

    def _begun(self) -> str:
        """Have something run in the background, with its events kept."""
        body = {"model": MODEL, "input": "Count to 100000.", "background": True, "stream": True}
        with self._http.stream("POST", "/v1/responses", json=body) as answer:
            for line in answer.raise_for_status().iter_lines():
                if line.startswith("data: "):
                    return json.loads(line.removeprefix("data: "))["response"]["id"]
        raise AssertionError("the stream had no event")

    def _done(self) -> None:
        self._removed(self._job)
        self._job = ""

    def _removed(self, id: str) -> None:
        self._http.delete(f"/v1/responses/{id}", params={"erase": "true"}).raise_for_status()
