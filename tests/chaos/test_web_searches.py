"""Workers that die while the browser searches or opens a page: the call only reads, so whoever takes over makes it
again, and goes on with the same pages under the same cursors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.embedded import EmbeddedServer
from tests.support.chaos.stage import SECONDS, Stage
from tests.support.search.site import Site, searched_site
from tests.support.waiting import wait_until

SEARCH: Any = {"type": "web_search"}
WORDS = 'Search the web for "high water" in Brest'

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def site() -> Iterator[Site]:
    """What is searched."""
    with searched_site() as opened:
        yield opened


@pytest.fixture
def stage(tmp_path: Path, site: Site) -> Iterator[Stage]:
    """Everything but a worker."""
    searched = {"search": "searxng", "search_url": site.url, "search_hosts": "127.0.0.1"}
    with EmbeddedServer(tmp_path / "store") as store:
        opened = Stage(tmp_path, store.url, **searched, demo_tokens_per_second=400)
        try:
            yield opened
        finally:
            opened.close()


def test_a_search_and_a_page_are_asked_for_again_by_whoever_takes_over(stage: Stage, site: Site) -> None:
    first = stage.worker()
    id = stage.ask(WORDS, SEARCH)
    wait_until(lambda: site.asked.count("/search") == 1, SECONDS)
    shown = stage.get(id).output[-1]
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
