"""Workers that die when they have asked for an approval. test_deaths_around_calls.py has those behind the answer."""

from pathlib import Path

import pytest

from service.api.response import McpApprovalRequest
from service.settings.settings import load_settings
from store.embedded import EmbeddedServer
from store.redis.connection import connect
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, opened, queue, working
from tests.support.chaos.mortals import dead, mortals
from tests.support.chaos.storm import STEADY
from tests.support.tools.server import mcp_server
from tests.support.waiting import until

SECONDS = 40.0
TOKENS_PER_SECOND = 400

pytestmark = pytest.mark.timeout(150)


async def test_a_worker_that_dies_when_it_has_asked_asks_once(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        settings = load_settings(
            redis_url=store.url, mcp_allow=mcp.url, demo_tokens_per_second=TOKENS_PER_SECOND, **STEADY
        )
        aftermath = Aftermath(settings)
        tools = [{"type": "mcp", "server_label": "maths", "server_url": mcp.url, "allowed_tools": ["send_mail"]}]
        async with mortals() as program, opened(settings) as service:
            id = await queue(service, "Call the tool send_mail to Bob", tools=tools)
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
