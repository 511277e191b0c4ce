"""Workers that die while the browser searches or opens a page: the call only reads, so whoever takes over makes it
again, and goes on with the same pages under the same cursors.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from service.api.response import Message, ResponseStatus, WebSearchCall
from service.settings.settings import load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, opened, queue, working
from tests.support.chaos.mortals import dead, mortals
from tests.support.chaos.storm import QUICK, STEADY
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.waiting import until, wait_until

SECONDS = 40.0
HELD_SECONDS = 60.0
SEARCH: Any = {"type": "web_search"}
WORDS = 'Search the web for "high water" in Brest'

pytestmark = pytest.mark.timeout(150)


class Site:
    """A search service and a page, both of which answer once they are let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.free = {"/search": threading.Event(), "/page": threading.Event()}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                site.asked.append(path)
                site.free[path].wait(HELD_SECONDS)
                found = {"results": [{"url": f"{site.url}/page", "title": "Tides", "content": "High water."}]}
                body = json.dumps(found) if path == "/search" else "<title>Tides</title><p>High water is at ten."
                self.send_response(200)
                self.send_header("content-type", "application/json" if path == "/search" else "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with suppress(BrokenPipeError):  # who asked may be dead
                    self.wfile.write(body.encode())

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Nothing is said."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """It answers nobody any more."""
        for free in self.free.values():
            free.set()
        self.server.shutdown()
        self.server.server_close()


class Stage:
    """A site, an API without a worker, and workers that come and go, over one store."""

    def __init__(self, folder: Path, redis_url: str, site: Site) -> None:
        self._folder = folder
        self._settings: dict[str, Any] = QUICK | {
            "redis_url": redis_url,
            "search": "searxng",
            "search_url": site.url,
            "search_hosts": "127.0.0.1",
            "demo_tokens_per_second": 400,
        }
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    def worker(self) -> WorkerProcess:
        """Another worker."""
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def done(self, id: str) -> Response:
        """The response at its end."""
        client = self.api.client()
        wait_until(lambda: client.responses.retrieve(id).status not in ("queued", "in_progress"), SECONDS)
        return client.responses.retrieve(id)

    def close(self) -> None:
        """End all processes."""
        for each in (self.api, *self._workers):
            each.kill()


@pytest.fixture
def site() -> Iterator[Site]:
    opened_site = Site()
    try:
        yield opened_site
    finally:
        opened_site.close()


@pytest.fixture
def stage(tmp_path: Path, site: Site) -> Iterator[Stage]:
    with EmbeddedServer(tmp_path / "store") as store:
        made = Stage(tmp_path, store.url, site)
        try:
            yield made
        finally:
            made.close()


def test_a_search_and_a_page_are_asked_for_again_by_whoever_takes_over(stage: Stage, site: Site) -> None:
    first = stage.worker()
    id = stage.api.client().responses.create(model=MODEL, input=WORDS, tools=[SEARCH], background=True).id
    wait_until(lambda: site.asked.count("/search") == 1, SECONDS)
    shown = stage.api.client().responses.retrieve(id).output[-1]
    assert (shown.type, getattr(shown, "status", None)) == ("web_search_call", "in_progress")
    first.kill()
    second = stage.worker()
    wait_until(lambda: site.asked.count("/search") == 2, SECONDS)
    site.free["/search"].set()
    wait_until(lambda: site.asked.count("/page") == 1, SECONDS)
    second.kill()
    stage.worker()
    wait_until(lambda: site.asked.count("/page") == 2, SECONDS)
    site.free["/page"].set()
    done = stage.done(id)

    assert done.status == "completed"
    assert [item.type for item in done.output if item.type != "reasoning"] == ["web_search_call"] * 2 + ["message"]
    assert site.asked == ["/search", "/search", "/page", "/page"]
    assert f"([{site.url.removeprefix('http://')}]({site.url}/page))" in done.output_text
    assert len(done.output[-1].to_dict()["content"][0]["annotations"]) == 1  # type: ignore[index]


@pytest.mark.parametrize("step", ["calling", "called"])
async def test_a_worker_dies_between_the_log_and_the_search(tmp_path: Path, step: str) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "tides.html").write_text("<title>Tides</title><p>High water is at ten.")
    with EmbeddedServer(tmp_path / "store") as store:
        settings = load_settings(
            redis_url=store.url, search="folder", search_folder=str(folder), demo_tokens_per_second=400, **STEADY
        )
        aftermath = Aftermath(settings)
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, WORDS, tools=[SEARCH])
            pid = await program.begin(settings, step)
            await until(lambda: dead(pid), SECONDS, "the worker doesn't die")
            async with working(settings, WatchedEngine(400)):
                await until(aftermath.left_over, SECONDS, wanted=lambda left: not left)
            response = await aftermath.response(id)
            await aftermath.close()

    calls = [item for item in response.output if isinstance(item, WebSearchCall)]
    answer = response.output[-1]
    assert response.status == ResponseStatus.COMPLETED
    assert [call.status for call in calls] == ["completed", "completed"]
    assert isinstance(answer, Message)
    assert "High water is at ten ([docs.invalid](https://docs.invalid/tides.html))." in answer.content[0].text
    assert len(answer.content[0].annotations) == 1
