"""SmolLM2-135M on a real vLLM: a real model that speaks by a chat template, over both endpoints for token ids.

What it says is nonsense as often as not; what matters is that the service asks for it and reads it right.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema_rs
import msgspec
import pytest
from openai import AsyncOpenAI

from service.engine.servers.engine import Access
from service.engine.servers.kind import Ask, Facts, Wanted
from service.engine.vllm.servers import Endpoint, Vllm
from service.settings.settings import Settings
from tests.support.service.inside import serving
from tests.support.vllm.reuse import Recorder, reuse
from tests.support.vllm.server import SMOL, block_tokens

pytestmark = [pytest.mark.vllm, pytest.mark.full]

TURNS = 12
LEAST_SHARE = 0.99

TRIP: Any = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TRAVEL: Any = {"type": "function", "name": "travel", "parameters": TRIP, "strict": True}


class OlderVllm(Vllm):
    """A server without scale-out, as an older one is: it is asked over `/v1/completions`."""

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        return msgspec.structs.replace(await super().facts(ask, wanted), endpoint=Endpoint.COMPLETIONS)


@pytest.fixture(params=[Vllm, OlderVllm], ids=["generate", "completions"])
def recorder(request: pytest.FixtureRequest, smol_url: str) -> Recorder:
    """The server as an engine, over either endpoint."""
    return Recorder(request.param(), Access((smol_url,)))


@pytest.fixture
async def client(settings: Settings, recorder: Recorder) -> AsyncIterator[AsyncOpenAI]:
    async with serving(settings, recorder) as inside, inside.client() as client:
        yield client


async def ask(client: AsyncOpenAI, said: Any, after: Any = None, **more: Any) -> Any:
    options: dict[str, Any] = {"temperature": 0, "max_output_tokens": 30} | more
    return await client.responses.create(
        model=SMOL, input=said, previous_response_id=after.id if after else None, **options
    )


async def exposed(url: str) -> str:
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as http:
        return (await http.get("/metrics")).text


async def test_of_a_long_conversation_all_is_cached_but_what_is_new(
    client: AsyncOpenAI, recorder: Recorder, smol_url: str
) -> None:
    last = None
    for turn in range(TURNS):  # most are cut short, which shows that such turns stay a prefix, too
        said = f"Say one short sentence with the number {turn} and a sign such as \u2713 or \U0001f600."
        last = await ask(client, said, last, temperature=0.8, extra_body={"seed": turn})
    steps = recorder.steps
    assert len(steps) == TURNS
    kept = reuse(steps, block_tokens(await exposed(smol_url)))
    assert kept.common >= LEAST_SHARE * kept.previous
    assert kept.cached >= LEAST_SHARE * kept.whole_blocks


async def test_a_required_call_is_made_by_a_model_that_knows_none(client: AsyncOpenAI) -> None:
    required: Any = {"tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 80}
    asked = await ask(client, "Where should I go?", tools=[TRAVEL], **required)
    (call,) = asked.output
    assert (call.type, call.name, call.status) == ("function_call", "travel", "completed")
    jsonschema_rs.validate(TRIP, json.loads(call.arguments))
    answer: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "The weather is fine."}]
    told = await ask(client, answer, asked, tools=[TRAVEL], tool_choice="none")
    assert told.output  # perhaps another call, which it copies: never one that is the caller's to answer
    assert "function_call" not in [item.type for item in told.output]
