"""SmolLM2-135M on a real vLLM: a real model that speaks by a chat template, over both endpoints for token ids.

What it says is nonsense as often as not; what matters is that the service asks for it and reads it right.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from openai import AsyncOpenAI

from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import Ask, ServerFacts, Wanted
from service.engine.vllm.servers import TokensEndpoint, Vllm
from service.features.models.speech import Disarming
from service.process import Settings
from tests.support.service.inside import serving
from tests.support.vllm.fixtures import FINE_CACHE, TEST_SECONDS, served
from tests.support.vllm.server import SMOL

pytestmark = [pytest.mark.vllm, pytest.mark.full, pytest.mark.timeout(TEST_SECONDS)]


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

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        return msgspec.structs.replace(await super().facts(ask, wanted), endpoint=TokensEndpoint.COMPLETIONS)


@pytest.fixture(scope="module")
def smol_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM server of SmolLM2."""
    yield from served(tmp_path_factory.mktemp("smol"), SMOL, *FINE_CACHE[:2])


@pytest.fixture(params=[Vllm, OlderVllm], ids=["generate", "completions"])
async def client(request: pytest.FixtureRequest, settings: Settings, smol_url: str) -> AsyncIterator[AsyncOpenAI]:
    """A client of a service before the server, over either endpoint."""
    engine = ServersEngine(request.param(Disarming()), Access((smol_url,)))
    async with serving(settings, engine) as inside, inside.client() as client:
        yield client


async def ask(client: AsyncOpenAI, said: Any, after: Any = None, **more: Any) -> Any:
    options: dict[str, Any] = {"temperature": 0, "max_output_tokens": 30} | more
    return await client.responses.create(
        model=SMOL, input=said, previous_response_id=after.id if after else None, **options
    )


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
