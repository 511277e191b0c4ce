"""What the protocol has besides asking and answering, with a model that speaks by a chat template."""

import itertools
import json
import re
from collections.abc import AsyncIterator
from functools import lru_cache, partial
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.api.ids import response_of
from service.background.timing import Timing
from service.backoff import Backoff
from service.responses.templated import READ
from service.settings.settings import Settings
from tests.support.markup.speaker import ASSISTANT, END, START, Speaker
from tests.support.service import inside

serving = partial(inside.serving, timing=Timing(poll_seconds=0.05, engine_away=Backoff(0.01, 0.05)))

WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>'


def said(prompt: str) -> str:
    """What the model says, by the last message of a prompt."""
    last = prompt[: -len(ASSISTANT)].rstrip("\n").removesuffix(END).rpartition(START)[2]
    role, _, words = last.partition("\n")
    if "CONTEXT CHECKPOINT" in words or "ummar" in words:
        return f"<think>\nWhat was it?\n</think>\n\nThey like the number 7.{END}"
    if role == "tool":
        return f"<think>\nSo it is warm.\n</think>\n\nIt is {words} degrees.{END}"
    if "weather" in words:
        return f"<think>\nI need a tool.\n</think>\n\n{CALL}{END}"
    if len(words) > 1000:
        return f"That is long.{END}"
    return f"<think>\nThey greet me.\n</think>\n\nYou said: {words}{END}"


@pytest.fixture
def speaker() -> Speaker:
    return Speaker("qwen3", said)


@pytest.fixture
async def client(settings: Settings, speaker: Speaker) -> AsyncIterator[AsyncOpenAI]:
    async with serving(settings, speaker) as service, service.client() as client:
        yield client


async def test_whoever_keeps_the_history_sends_sealed_reasoning_back(client: AsyncOpenAI, speaker: Speaker) -> None:
    include: Any = ["reasoning.encrypted_content"]
    asked: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    ask: Any = partial(client.responses.create, model="speaker", store=False, include=include, tools=[WEATHER])
    call = await ask(input=asked)
    assert call.output[0].encrypted_content
    output = {"type": "function_call_output", "call_id": call.output[1].call_id, "output": "21"}
    told = await ask(input=[*asked, *(item.to_dict() for item in call.output), output])
    assert told.output_text == "It is 21 degrees."
    messages = json.loads(speaker.transcripts[-1].messages)
    assert messages[1]["reasoning_content"] == "I need a tool."


async def test_a_conversation_too_long_is_compacted_by_itself(client: AsyncOpenAI, speaker: Speaker) -> None:
    first = await client.responses.create(model="speaker", input="My number is 7. " * 300)
    answer = await client.responses.create(
        model="speaker",
        previous_response_id=first.id,
        input="Hello again!",
        context_management=[{"type": "compaction", "compact_threshold": 1000}],
    )
    assert [item.type for item in answer.output] == ["compaction", "reasoning", "message"]
    assert answer.output_text == "You said: Hello again!"
    assert "My number" not in speaker.prompts[-1]
    third = await client.responses.create(model="speaker", previous_response_id=answer.id, input="And again!")
    assert third.output_text == "You said: And again!"
    assert "My number" not in speaker.prompts[-1]


async def test_where_the_oldest_is_left_out_the_newest_stands_in_the_prompt(settings: Settings) -> None:
    numbers: dict[str, int] = {}

    def say(prompt: str) -> str:
        return f"Answer {numbers.setdefault(prompt, len(numbers))}. {'word ' * 1600}{END}"

    speaker, last = Speaker("hermes", say, pieces=1000), None
    async with serving(settings, speaker) as service, service.client() as client:
        for _ in range(7):
            asked = await client.responses.create(
                model="speaker", input="Go on.", truncation="auto", previous_response_id=last
            )
            last = asked.id
    answers = re.compile(r"Answer (\d)")
    kept = answers.findall(speaker.transcripts[-1].messages.decode())
    assert kept[-1] == "5"
    assert kept[0] > "0"
    assert answers.findall(speaker.prompts[-1]) == kept


@pytest.mark.parametrize("erase", [False, True])
async def test_what_was_deleted_comes_back_in_no_prompt(settings: Settings, erase: bool) -> None:
    """Each turn begins with the same words, so a prompt by the ids of earlier ones would look right."""
    numbers = itertools.count(1)
    speaker = Speaker("hermes", lru_cache(lambda _: f"This is answer {next(numbers)}.{END}"))
    async with serving(settings, speaker) as service, service.client() as client:
        conversation = await client.conversations.create()
        ask = partial(client.responses.create, model="speaker", input="Go on.", conversation=conversation.id)
        for _ in range(3):
            await ask()
        items = [item async for item in client.conversations.items.list(conversation.id, order="asc")]
        for item in items[:2]:
            await client.conversations.items.delete(
                str(item.id), conversation_id=conversation.id, extra_query={"erase": erase}
            )
        for answers in (["2", "3"], ["2", "3", "4"]):
            await ask()
            assert re.findall("answer ([0-9])", speaker.prompts[-1]) == answers
        kept = await service.store.messages("default", str(response_of(str(items[0].id))))
    assert [each.role for each in kept].count(READ) == (0 if erase else 1)
