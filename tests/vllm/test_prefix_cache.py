"""How much of a conversation the engine needn't read again: through harmonium, and through vLLM's own endpoint.

The same twenty turns with calls of a function go through both. What could be cached is the longest prefix that a
prompt has in common with the prompt before it and what was sampled then; what was, the server says.

harmonium keeps the sampled tokens, so it loses what it means to lose: the reasoning before an answer, once that is
final. vLLM's endpoint loses that as well, and every call in addition, as it renders calls anew and differently; see
own_responses.py. The longer a call's arguments, the more that is.
"""

import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from service.engine.servers.engine import Access, ServersEngine
from service.engine.vllm.servers import Vllm
from service.settings.settings import Settings
from tests.support.oracles.harmony import Oracle
from tests.support.service.inside import serving
from tests.support.vllm.own_responses import prompt_of, sampled_of
from tests.support.vllm.reuse import Recorder, Step, reuse
from tests.support.vllm.server import MODEL, block_tokens

pytestmark = [pytest.mark.vllm, pytest.mark.full]

TURNS = 20
SAID = ("What is the weather in Paris?", "Count to 40.", "What is the weather in Rome?", "Thank you.")
LEAST_CALLS = 5
"""The talker may lose the thread in a long conversation, and without calls it wouldn't be the one that is meant."""

LEAST_SHARE = 0.99

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
"""Not strict, so that a call is one generation here, as it is in vLLM."""


async def converse(client: AsyncOpenAI, **extra: Any) -> list[Any]:
    """All responses of twenty turns, each function's output a request of its own. `extra` goes into each request."""
    responses: list[Any] = []
    topic = f"Conversation {uuid.uuid4()}."

    async def ask(said: Any) -> list[Any]:
        response = await client.responses.create(
            model=MODEL,
            input=said,
            instructions=topic,
            tools=[WEATHER],
            previous_response_id=responses[-1].id if responses else None,
            temperature=0,
            max_output_tokens=150,
            extra_body=extra,
        )
        responses.append(response)
        return [item.call_id for item in response.output if item.type == "function_call"]

    for turn in range(TURNS):
        calls = await ask(SAID[turn % len(SAID)])
        if calls:
            outputs = [{"type": "function_call_output", "call_id": id, "output": '{"temp":21}'} for id in calls]
            await ask(outputs)
    assert len(responses) >= TURNS + LEAST_CALLS
    return responses


async def through_harmonium(settings: Settings, vllm_url: str) -> list[Step]:
    """The conversation's generations, as the engine was asked for them."""
    recorder = Recorder(ServersEngine(Vllm(), Access((vllm_url,))))
    async with serving(settings, recorder) as inside, inside.client() as client:
        responses = await converse(client)
    assert [one.usage.input_tokens_details.cached_tokens for one in responses] == [s.cached for s in recorder.steps]
    return recorder.steps


async def through_vllm_itself(vllm_url: str, oracle: Oracle) -> list[Step]:
    """The generations behind the same conversation with vLLM's own endpoint."""
    steps: list[Step] = []
    async with AsyncOpenAI(base_url=f"{vllm_url}/v1", api_key="none", max_retries=0, timeout=30) as client:
        for response in await converse(client, enable_response_messages=True):
            usage, shown = response.usage, response.model_extra
            step = Step(
                prompt_of(oracle, shown["input_messages"]),
                sampled_of(shown["output_messages"]),
                usage.input_tokens_details.cached_tokens,
            )
            assert (len(step.prompt), len(step.sampled)) == (usage.input_tokens, usage.output_tokens)
            steps.append(step)
    return steps


async def test_what_a_conversation_has_in_common_with_itself_is_cached(
    settings: Settings, vllm_url: str, tmp_path: Path
) -> None:
    async with httpx.AsyncClient(base_url=vllm_url, timeout=30, trust_env=False) as http:
        block = block_tokens((await http.get("/metrics")).text)
    ours = reuse(await through_harmonium(settings, vllm_url), block)
    theirs = reuse(await through_vllm_itself(vllm_url, Oracle(tmp_path)), block)
    print(f"\n{TURNS} turns, blocks of {block}   previous    common    blocks    cached   common  blocks cached")
    print(ours.row("harmonium"))
    print(theirs.row("vLLM's /v1/responses"))
    assert ours.cached >= LEAST_SHARE * ours.whole_blocks
    assert ours.common / ours.previous > theirs.common / theirs.previous
