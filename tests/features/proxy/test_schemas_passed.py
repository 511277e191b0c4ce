"""Schemas that would keep whoever compiles them busy for ever: they are refused or go on, and hold nobody up here."""

import asyncio
import json
import resource
from typing import Any

import pytest

from tests.features.proxy.conftest import Behind
from tests.support.service.lag import STALL_SECONDS, longest_work, post

MOST_MB = 64
LINKS = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{n + 1}"} for m in range(10)}} for n in range(200)}

SCHEMAS = {
    "nested 100,000 times": b'{"type":"array","items":' * 100_000 + b"{}" + b"}" * 100_000,
    "10 to the power of 200 paths": json.dumps({"$ref": "#/$defs/d0", "$defs": LINKS | {"d200": {}}}).encode(),
    "itself 5,000 times": json.dumps({"anyOf": [{"$ref": "#"}] * 5_000}).encode(),
    "a pattern of 10^12 states": b'{"type":"string","pattern":"(a{1,1000}){1,1000}(b{1,1000}){1,1000}"}',
    "10^18 items": b'{"type":"array","minItems":1000000000,"items":{"type":"string","minLength":1000000000}}',
    "30,000 times the same name": b'{"properties":{' + b'"a":{},' * 30_000 + b'"a":{}}}',
    "40,000 values": json.dumps({"enum": [str(number) for number in range(40_000)]}).encode(),
}

MESSAGES = b'{"model":"gpt-4o","max_tokens":4,"messages":[{"role":"user","content":"hi"}],'

DOORS: dict[str, tuple[str, bytes, bytes]] = {
    "a chat's format": (
        "/v1/chat/completions",
        b'"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":',
        b"}}}",
    ),
    "a chat's tool": (
        "/v1/chat/completions",
        b'"tool_choice":"required","tools":[{"type":"function","function":{"name":"x","strict":true,"parameters":',
        b"}}]}",
    ),
    "a message's format": (
        "/v1/messages",
        b'"output_config":{"format":{"type":"json_schema","schema":',
        b"}}}",
    ),
    "a message's tool": ("/v1/messages", b'"tools":[{"name":"x","input_schema":', b"}]}"),
}


@pytest.mark.parametrize("door", DOORS)
async def test_a_schema_that_nobody_can_compile_holds_nobody_up(behind: Behind, door: str) -> None:
    path, before, after = DOORS[door]
    memory = _peak_mb()
    found: dict[str, Any] = {}
    for name, schema in SCHEMAS.items():
        body = MESSAGES + before + schema + after
        work = asyncio.get_running_loop().run_in_executor(None, post, behind.inside.port, body, path, False)
        found[name] = await longest_work(work) < STALL_SECONDS, work.result() in (200, 400)
    assert found == dict.fromkeys(SCHEMAS, (True, True))
    assert _peak_mb() < memory + MOST_MB


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
