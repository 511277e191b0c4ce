"""Workers that die while a tool of an MCP server is called: what may have an effect is called at most once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from store.embedded import EmbeddedServer
from tests.support.chaos.stage import SECONDS, Stage
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import wait_until

TOKENS_PER_SECOND = 40
"""So that there is time to die amid an answer."""

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def mcp(tmp_path: Path) -> Iterator[McpServer]:
    """A server of tools."""
    with mcp_server(tmp_path / "mcp") as server:
        yield server


@pytest.fixture
def stage(tmp_path: Path, mcp: McpServer) -> Iterator[Stage]:
    """Everything but a worker."""
    with EmbeddedServer(tmp_path / "store") as store:
        opened = Stage(tmp_path, store.url, mcp_allow=mcp.url, demo_tokens_per_second=TOKENS_PER_SECOND)
        try:
            yield opened
        finally:
            opened.close()


def only(mcp: McpServer, tool: str) -> Any:
    """The declaration of the server with one tool."""
    allowed: dict[str, Any] = {"require_approval": "never", "allowed_tools": [tool]}
    return {"type": "mcp", "server_label": "maths", "server_url": mcp.url, **allowed}


def call_of(response: Response) -> Any:
    """Its one call of a tool."""
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    return call


def test_a_call_that_may_have_an_effect_is_not_made_again(stage: Stage, mcp: McpServer) -> None:
    first = stage.worker()
    id = stage.ask("Call the tool send_mail to Bob", only(mcp, "send_mail"))
    wait_until(lambda: mcp.began("send_mail") == 1, SECONDS)
    shown = stage.get(id).output[-1]
    assert (shown.type, getattr(shown, "status", None)) == ("mcp_call", "in_progress")
    first.kill()
    mcp.let_go()
    stage.worker()
    done = stage.done(id)

    assert done.status == "completed"
    assert call_of(done).status == "failed"
    assert "not known" in call_of(done).to_json()
    assert mcp.began("send_mail") == 1


def test_a_call_that_only_reads_is_made_again(stage: Stage, mcp: McpServer) -> None:
    first = stage.worker()
    id = stage.ask("Use the tool look_up for the word tide", only(mcp, "look_up"))
    wait_until(lambda: mcp.began("look_up") == 1, SECONDS)
    first.kill()
    stage.worker()
    wait_until(lambda: mcp.began("look_up") == 2, SECONDS)
    mcp.let_go()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).output) == ("completed", "completed", "look_up done")


def test_the_outcome_of_a_call_outlives_its_worker(stage: Stage, mcp: McpServer) -> None:
    first = stage.worker()
    mcp.let_go()
    id = stage.ask("Call the tool send_mail to Bob", only(mcp, "send_mail"))
    wait_until(lambda: any(item.type == "mcp_call" and item.output for item in stage.get(id).output), SECONDS)
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).output) == ("completed", "completed", "send_mail done")
    assert mcp.began("send_mail") == 1
    assert "send_mail done" in done.output_text


@pytest.mark.parametrize(
    ("tool", "words", "calls", "status"),
    [
        ("look_up", "Use the tool look_up for the word tide", 2, "completed"),
        ("send_mail", "Call the tool send_mail to Bob", 1, "failed"),
    ],
)
def test_a_worker_that_is_stopped_amid_a_call_hands_the_response_over(
    stage: Stage, mcp: McpServer, tool: str, words: str, calls: int, status: str
) -> None:
    first = stage.worker()
    id = stage.ask(words, only(mcp, tool))
    wait_until(lambda: mcp.began(tool) == 1, SECONDS)
    first.stop()
    stage.worker()
    mcp.let_go()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", status)
    assert ("not known" in str(call_of(done).error)) is (status == "failed")
    assert (mcp.began(tool), mcp.cancelled(tool)) == (calls, 1)
