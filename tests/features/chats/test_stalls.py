"""Nobody waits for somebody else's heavy message, and none is held."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.api.content import MAX_PARTS
from service.process import Settings
from tests.core.web.test_memory import check_run
from tests.support.service.background import changed
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.lag import least_stall
from tests.support.service.process import MODEL

EIGHT_MB = 8_000_000
BLOCKS: dict[str, Callable[[], list[Any]]] = {
    "one text": lambda: [{"type": "text", "text": "ab c" * (EIGHT_MB // 4)}],
    "short texts": lambda: [{"type": "text", "text": "a"}] * MAX_PARTS,
    "parts of a result": lambda: [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "a" * 8000}] * 900}
    ],
}


@pytest.mark.parametrize("name", list(BLOCKS))
async def test_the_loop_never_stops_for_long_while_a_message_of_many_blocks_is_read(
    settings: Settings, name: str
) -> None:
    async with serving(changed(settings, chats="remember"), scripted([answer("Fine.")])) as inside:
        messages = [{"role": "user", "content": BLOCKS[name]()}]
        body = json.dumps({"model": MODEL, "max_tokens": 16, "messages": messages}).encode()
        assert await least_stall(inside.port, lambda: body, "/v1/messages") < 1


async def test_a_run_holds_no_body(settings: Settings) -> None:
    await check_run(changed(settings, chats="remember"), "/v1/chat/completions", "messages")
