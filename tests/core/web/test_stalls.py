"""Nobody waits for somebody else's heavy request: the event loop never stops for long, whatever it is sent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from service.api.content import MAX_PARTS
from service.process import Settings
from tests.support.bad.heavy import BODIES, HEAVY, LEGAL
from tests.support.service.background import changed
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.lag import least_stall
from tests.support.service.process import MODEL

AMONG_OTHERS = (
    "ten MB of letters",
    "300,000 Chinese characters",
    "as many words as fit",
    "as many numbers as fit",
    "as many objects as fit",
    "as many escapes as fit",
    "as many tools as fit",
)
"""Those that are sent in every run while others ask for something; the rest is in the long one."""

CASES: dict[str, Callable[[], bytes]] = LEGAL | {name: bad.body for name, bad in HEAVY.items() if callable(bad.body)}


ON_A_PUSH = (*AMONG_OTHERS, *LEGAL, *list(BODIES)[::3])
"""Those that are sent by themselves in every run."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ON_A_PUSH else pytest.mark.full) for name in (*CASES, *BODIES)]
)
async def test_the_loop_never_stops_for_long(settings: Settings, name: str) -> None:
    async with serving(settings, scripted([answer("Fine.")])) as inside:
        assert await least_stall(inside.port, (CASES | BODIES)[name]) < 1


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
    async with serving(changed(settings, chats="remembered"), scripted([answer("Fine.")])) as inside:
        messages = [{"role": "user", "content": BLOCKS[name]()}]
        body = json.dumps({"model": MODEL, "max_tokens": 16, "messages": messages}).encode()
        assert await least_stall(inside.port, lambda: body, "/v1/messages") < 1
