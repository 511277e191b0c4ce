"""Workers that die while files are searched: the call only reads, so whoever takes over makes it again, and its outcome
outlives whoever heard of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.tools import library
from tests.support.tools.server import mcp_server
from tests.support.waiting import wait_until

SECONDS = 40.0
TOKENS_PER_SECOND = 40
"""So that there is time to die amid an answer."""

FILES: Any = {"type": "file_search", "vector_store_ids": ["vs_1"]}
HELD = 'Search my files for "wait".'
FREE = 'Search my files for "tides".'

pytestmark = pytest.mark.timeout(150)


class Stage:
    """A server that searches, an API without a worker, and workers that come and go, over one store."""

    def __init__(self, folder: Path, redis_url: str, url: str) -> None:
        self._folder = folder
        (folder / "mcp.toml").write_text(f'[library]\nurl = "{url}"\ntype = "file_search"\ntool = "search"\n')
        self._settings: dict[str, Any] = QUICK | {
            "redis_url": redis_url,
            "mcp_servers": str(folder / "mcp.toml"),
            "demo_tokens_per_second": TOKENS_PER_SECOND,
        }
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    @property
    def searches(self) -> int:
        """How many searches the server was asked for."""
        return len(library.given(self._folder / "mcp"))

    def let_go(self) -> None:
        """Let those searches end that wait."""
        (self._folder / "mcp" / "go").touch()

    def worker(self) -> WorkerProcess:
        """Another worker."""
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def ask(self, words: str) -> str:
        """The id of a response in the background that searches."""
        made = self.api.client().responses.create(
            model=MODEL, input=words, tools=[FILES], include=["file_search_call.results"], background=True
        )
        return made.id

    def get(self, id: str) -> Response:
        """The response as it stands."""
        return self.api.client().responses.retrieve(id)

    def done(self, id: str) -> Response:
        """The response at its end."""
        wait_until(lambda: self.get(id).status not in ("queued", "in_progress"), SECONDS, "it doesn't end")
        return self.get(id)

    def close(self) -> None:
        """End all processes."""
        for each in (self.api, *self._workers):
            each.kill()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Everything but a worker."""
    with (
        EmbeddedServer(tmp_path / "store") as store,
        mcp_server(tmp_path / "mcp", "tests.support.tools.library") as mcp,
    ):
        made = Stage(tmp_path, store.url, mcp.url)
        try:
            yield made
        finally:
            made.close()


def search_of(response: Response) -> Any:
    """Its one search."""
    (search,) = [item for item in response.output if item.type == "file_search_call"]
    return search


def test_a_search_is_made_again_by_whoever_takes_over(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask(HELD)
    wait_until(lambda: stage.searches == 1, SECONDS)
    assert search_of(stage.get(id)).status == "in_progress"
    first.kill()
    stage.worker()
    wait_until(lambda: stage.searches == 2, SECONDS)
    stage.let_go()
    done = stage.done(id)

    assert (done.status, search_of(done).status, search_of(done).queries) == ("completed", "completed", ["wait"])
    assert [each.file_id for each in search_of(done).results] == ["file-tides", "file-moon"]
    assert "High water is at ten." in done.output_text


def test_what_was_found_outlives_its_worker(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask(FREE)
    wait_until(lambda: any(getattr(item, "results", None) for item in stage.get(id).output), SECONDS)
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, search_of(done).status) == ("completed", "completed")
    assert stage.searches == 1
    assert "High water is at ten." in done.output_text


def test_a_cancelled_search_is_incomplete(stage: Stage) -> None:
    stage.worker()
    id = stage.ask(HELD)
    wait_until(lambda: stage.searches == 1, SECONDS)
    cancelled = stage.api.client().responses.cancel(id)

    assert cancelled.status == "cancelled"
    assert search_of(stage.get(id)).status == "incomplete"
