"""Workers that die while a tool of an MCP server is called: what may have an effect is called at most once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from service.api.response import McpCall, ResponseStatus
from service.settings.settings import load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, opened, queue, working
from tests.support.chaos.mortals import dead, mortals
from tests.support.chaos.storm import QUICK, STEADY
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until, wait_until

SECONDS = 40.0
TOKENS_PER_SECOND = 40
"""So that there is time to die amid an answer."""

pytestmark = pytest.mark.timeout(150)


class Stage:
    """A server of tools, an API without a worker, and workers that come and go, over one store."""

    def __init__(self, folder: Path, redis_url: str, mcp: McpServer) -> None:
        self.mcp = mcp
        self._folder = folder
        self._settings: dict[str, Any] = QUICK | {
            "redis_url": redis_url,
            "mcp_allow": mcp.url,
            "demo_tokens_per_second": TOKENS_PER_SECOND,
        }
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    def worker(self) -> WorkerProcess:
        """Another worker."""
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def ask(self, words: str, *tools: str) -> str:
        """The id of a response in the background, which may use these tools."""
        server: Any = {
            "type": "mcp",
            "server_label": "maths",
            "server_url": self.mcp.url,
            "require_approval": "never",
            "allowed_tools": tools,
        }
        made = self.api.client().responses.create(model=MODEL, input=words, tools=[server], background=True)
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
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        opened = Stage(tmp_path, store.url, mcp)
        try:
            yield opened
        finally:
            opened.close()


def call_of(response: Response) -> Any:
    """Its one call of a tool."""
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    return call


def test_a_call_that_may_have_an_effect_is_not_made_again(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask("Call the tool send_mail to Bob", "send_mail")
    wait_until(lambda: stage.mcp.began("send_mail") == 1, SECONDS)
    shown = stage.get(id).output[-1]
    assert (shown.type, getattr(shown, "status", None)) == ("mcp_call", "in_progress")
    first.kill()
    stage.mcp.let_go()
    stage.worker()
    done = stage.done(id)

    assert done.status == "completed"
    assert call_of(done).status == "failed"
    assert "not known" in call_of(done).to_json()
    assert stage.mcp.began("send_mail") == 1


def test_a_call_that_only_reads_is_made_again(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask("Use the tool look_up for the word tide", "look_up")
    wait_until(lambda: stage.mcp.began("look_up") == 1, SECONDS)
    first.kill()
    stage.worker()
    wait_until(lambda: stage.mcp.began("look_up") == 2, SECONDS)
    stage.mcp.let_go()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).output) == ("completed", "completed", "look_up done")


def test_the_outcome_of_a_call_outlives_its_worker(stage: Stage) -> None:
    first = stage.worker()
    stage.mcp.let_go()
    id = stage.ask("Call the tool send_mail to Bob", "send_mail")
    wait_until(lambda: any(item.type == "mcp_call" and item.output for item in stage.get(id).output), SECONDS)
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).output) == ("completed", "completed", "send_mail done")
    assert stage.mcp.began("send_mail") == 1
    assert "send_mail done" in done.output_text


def test_a_worker_that_is_stopped_amid_a_call_hands_the_response_over(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask("Use the tool look_up for the word tide", "look_up")
    wait_until(lambda: stage.mcp.began("look_up") == 1, SECONDS)
    first.stop()
    stage.worker()
    stage.mcp.let_go()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", "completed")


@pytest.mark.parametrize(
    ("tool", "words", "step", "calls", "status"),
    [
        ("send_mail", "Call the tool send_mail to Bob", "calling", 0, "failed"),
        ("send_mail", "Call the tool send_mail to Bob", "called", 1, "failed"),
        ("look_up", "Use the tool look_up for the word tide", "calling", 1, "completed"),
        ("look_up", "Use the tool look_up for the word tide", "called", 2, "completed"),
    ],
)
async def test_a_worker_dies_between_the_log_and_the_tool(
    tmp_path: Path, tool: str, words: str, step: str, calls: int, status: str
) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        settings = load_settings(redis_url=store.url, mcp_allow=mcp.url, demo_tokens_per_second=400, **STEADY)
        declared = {"type": "mcp", "server_label": "maths", "server_url": mcp.url, "require_approval": "never"}
        aftermath = Aftermath(settings)
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, words, tools=[declared | {"allowed_tools": [tool]}])
            pid = await program.begin(settings, step)
            await until(lambda: dead(pid), SECONDS, "the worker doesn't die")
            began = mcp.began(tool)
            async with working(settings, WatchedEngine(400)):
                await until(aftermath.left_over, SECONDS, wanted=lambda left: not left)
            response = await aftermath.response(id)
            await aftermath.close()

        (called,) = [item for item in response.output if isinstance(item, McpCall)]
        assert began == (step == "called")
        assert (response.status, called.status) == (ResponseStatus.COMPLETED, status)
        assert mcp.began(tool) == calls
        assert ("not known" in str(called.error)) is (status == "failed")
