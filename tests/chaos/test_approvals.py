"""Workers that die around a call that somebody approved: it is made once at most, and not lost before it began."""

from pathlib import Path
from typing import Any

import pytest

from service.api.response import McpApprovalRequest, McpCall, Response, ResponseStatus
from service.responses.service import Service
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from store.redis.connection import connect
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, opened, queue, working
from tests.support.chaos.mortals import dead, mortals
from tests.support.chaos.storm import STEADY
from tests.support.store.audit import complaints
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until

SECONDS = 40.0
TOKENS_PER_SECOND = 400

pytestmark = pytest.mark.timeout(150)

WORDS = {"send_mail": "Call the tool send_mail to Bob", "look_up": "Use the tool look_up for the word tide"}


async def made(service: Service, settings: Settings, aftermath: Aftermath, said: Any, **members: Any) -> Response:
    """A response in the background, made by a worker that lives."""
    id = await queue(service, said, **members)
    async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
        await until(aftermath.left_over, SECONDS, wanted=lambda left: not left)
    return await aftermath.response(id)


def declared(mcp: McpServer, tool: str) -> Any:
    """The server, whose tools somebody has to approve."""
    return {"type": "mcp", "server_label": "maths", "server_url": mcp.url, "allowed_tools": [tool]}


@pytest.mark.parametrize(
    ("tool", "step", "calls", "status"),
    [
        ("send_mail", "writing", 1, "completed"),
        ("send_mail", "written", 1, "completed"),
        ("send_mail", "using up", 1, "completed"),
        ("send_mail", "used up", 0, "failed"),
        ("send_mail", "called", 1, "failed"),
        ("send_mail", "written again", 1, "completed"),
        ("send_mail", "finishing", 1, "completed"),
        ("look_up", "used up", 1, "completed"),
        ("look_up", "called", 2, "completed"),
    ],
)
async def test_a_worker_dies_between_two_steps_of_a_call_that_was_approved(
    tmp_path: Path, tool: str, step: str, calls: int, status: str
) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        settings = load_settings(
            redis_url=store.url, mcp_allow=mcp.url, demo_tokens_per_second=TOKENS_PER_SECOND, **STEADY
        )
        aftermath, tools = Aftermath(settings), [declared(mcp, tool)]
        async with mortals() as program, opened(settings) as service:
            first = await made(service, settings, aftermath, WORDS[tool], tools=tools)
            request = first.output[-1]
            assert isinstance(request, McpApprovalRequest)
            says = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
            id = await queue(service, says, tools=tools, after=first.id)
            pid = await program.begin(settings, step)
            await until(lambda: dead(pid), SECONDS, "the worker doesn't die")
            began = mcp.began(tool)
            async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
                await until(aftermath.left_over, SECONDS, wanted=lambda left: not left)
            response = await aftermath.response(id)
            await aftermath.close()
        redis = connect(store.url)
        wrong = await complaints(redis, settings.key_prefix)
        await redis.aclose()

    (called,) = [item for item in response.output if isinstance(item, McpCall)]
    assert began == (step in ("called", "written again", "finishing"))
    assert (response.status, called.status) == (ResponseStatus.COMPLETED, status)
    assert called.approval_request_id == request.id
    assert mcp.began(tool) == calls
    assert ("not known" in str(called.error)) is (status == "failed")
    assert wrong == []


async def test_a_worker_that_dies_when_it_has_asked_asks_once(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        settings = load_settings(
            redis_url=store.url, mcp_allow=mcp.url, demo_tokens_per_second=TOKENS_PER_SECOND, **STEADY
        )
        aftermath, tools = Aftermath(settings), [declared(mcp, "send_mail")]
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, WORDS["send_mail"], tools=tools)
            pid = await program.begin(settings, "finishing")
            await until(lambda: dead(pid), SECONDS, "the worker doesn't die")
            async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
                await until(aftermath.left_over, SECONDS, wanted=lambda left: not left)
            response = await aftermath.response(id)
            await aftermath.close()
        redis = connect(store.url)
        asked = await redis.zcard(f"{settings.key_prefix}:{{{id[5:7]}}}:approvals:default")
        await redis.aclose()

    assert isinstance(response.output[-1], McpApprovalRequest)
    assert asked == 1
